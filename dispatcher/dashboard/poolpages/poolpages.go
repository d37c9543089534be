// Package poolpages are the pages of the dashboard about the pool as a whole: the overview,
// and lists of jobs, batches, queues, workers, schedules, dead letters and tokens.
//
// A page reads with [dashboard.Look], whose answers the browsers share that ask at the same
// time, and acts with [dashboard.Ask] or a client of the visit. It shows what operations
// give, and what can be summed up of that.
package poolpages

import (
	"embed"
	"slices"

	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs/operation"
)

//go:embed templates
var files embed.FS

// page parses the page of a name.
func page(name string) *dashboard.Template {
	return dashboard.ParseTemplate(files, "templates/partials.html", "templates/"+name+".html")
}

// Section returns the pages.
func Section() dashboard.Section {
	return dashboard.Section{
		Routes: slices.Concat([]dashboard.Route{{Pattern: "GET /ui/{$}", Serve: overview}}, jobRoutes(), batchRoutes(), poolRoutes(), bulkRoutes(), deadRoutes(), webhookRoutes()),
		Entries: []dashboard.Entry{
			{Name: "Overview", Path: "/ui/", Row: operation.QueueList.Row},
			{Name: "Jobs", Path: "/ui/jobs", Row: operation.List.Row},
			{Name: "Batches", Path: "/ui/batches", Row: operation.BatchList.Row},
			{Name: "Queues", Path: "/ui/queues", Row: operation.QueueList.Row},
			{Name: "Workers", Path: "/ui/workers", Row: operation.Workers.Row},
			{Name: "Schedules", Path: "/ui/schedules", Row: operation.ScheduleList.Row},
			{Name: "Dead letters", Path: "/ui/dead", Row: operation.DeadList.Row},
			{Name: "Webhooks", Path: "/ui/webhooks", Row: operation.WebhookList.Row},
			{Name: "Tokens", Path: "/ui/tokens", Row: operation.TokenList.Row},
		},
		Notices: map[string]string{
			"paused":              "Paused: what runs goes on, and nothing new begins.",
			"resumed":             "Resumed.",
			"drained":             "Drained: none of its jobs runs, and nothing new begins.",
			"worker-drains":       "It claims no more jobs; what it runs goes on.",
			"worker-resumed":      "It claims jobs again, within seconds.",
			"draining":            "Draining: nothing new begins; %s of its jobs still run.",
			"batch-cancelled":     "The batch is cancelled: %s of its jobs had not ended.",
			"cancelled":           "Cancelled: %s of the checked jobs. The others had ended already.",
			"retried":             "Running again: %s jobs.",
			"nothing-checked":     "No job is checked.",
			"schedule-run":        "The job of the schedule is submitted.",
			"schedule-paused":     "Paused: the schedule submits nothing until it is resumed.",
			"letter-retried":      "The job runs again.",
			"letter-submitted":    "The job is submitted again.",
			"letter-dropped":      "The dead letter is dropped.",
			"letter-nothing":      "Nothing could be done: the dead letter has changed meanwhile, or cannot be brought back.",
			"webhook-tested":      "The test was delivered.",
			"webhook-failed":      "The test was not delivered: the list says why.",
			"webhook-redelivered": "The event is delivered again.",
			"token-removed":       "The token is removed.",
		},
	}
}
