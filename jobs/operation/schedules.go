package operation

import "github.com/penstock-run/penstock/jobs/calendar"

// Operations on schedules.
var (
	ScheduleAdd = defineDocument[calendar.Schedule, calendar.Record](Row{
		Name: "schedule-add", Changes: true, what: "schedule", Sentence: "Add a schedule; one of that name is an error.",
	})
	ScheduleReplace = defineDocument[calendar.Schedule, calendar.Record](Row{
		Name: "schedule-replace", Changes: true, what: "schedule", Sentence: "Add a schedule, or replace the one of that name.",
	})
	ScheduleList = define[PageRequest, SchedulePage](Row{
		Name: "schedule-list", Roles: readers, Sentence: "List the schedules, by name.",
	})
	ScheduleGet = define[Named, calendar.Record](Row{
		Name: "schedule-get", Roles: readers, Sentence: "Return a schedule, its next firing and its last one.",
	})
	SchedulePause = define[Named, calendar.Record](Row{
		Name: "schedule-pause", Changes: true, Sentence: "Pause a schedule until it is resumed.",
	})
	ScheduleResume = define[Named, calendar.Record](Row{
		Name: "schedule-resume", Changes: true, Sentence: "Resume a paused schedule.",
	})
	ScheduleRun = define[Named, calendar.Record](Row{
		Name: "schedule-run", Changes: true, Sentence: "Submit a schedule's job now; its calendar stays as it is.",
	})
	ScheduleRemove = define[Named, Named](Row{
		Name: "schedule-remove", Changes: true, Sentence: "Remove a schedule; the jobs that it made stay.",
	})
)

// A SchedulePage is a page of schedules.
type SchedulePage struct {
	Schedules []calendar.Record `json:"schedules" jsonschema:"The schedules, by name."`
	Next      string            `json:"next,omitempty" jsonschema:"There if the list goes on: what the next request has as after."`
}
