package dispatcher

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/queue"
)

// scheduleVerbs are the requests of the bus about schedules.
func (d *Dispatcher) scheduleVerbs() map[string]queue.Verb {
	return map[string]queue.Verb{
		"schedule-add":     d.addVerb(false),
		"schedule-replace": d.addVerb(true),
		"schedule-list":    func(ctx context.Context, _ []byte) (any, error) { return d.cfg.Queue.Schedules(ctx) },
		"schedule-get":     byName(d.cfg.Queue.Schedule),
		"schedule-pause": byName(func(ctx context.Context, name string) (calendar.Record, error) {
			return d.PauseSchedule(ctx, name, "api")
		}),
		"schedule-resume": byName(d.ResumeSchedule),
		"schedule-run":    byName(d.RunSchedule),
		"schedule-remove": byName(func(ctx context.Context, name string) (named, error) {
			return named{name}, d.cfg.Queue.RemoveSchedule(ctx, name)
		}),
	}
}

// addVerb takes a schedule.
func (d *Dispatcher) addVerb(replace bool) queue.Verb {
	return func(ctx context.Context, data []byte) (any, error) {
		var s calendar.Schedule
		err := jobs.DecodeStrict(data, &s)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
			invalid.What = "schedule"
		}
		if err != nil {
			return nil, err
		}
		return d.AddSchedule(ctx, s, replace)
	}
}

type named struct {
	Name string `json:"name"`
}

// byName makes a verb of a function of a schedule's name. The request is
// {"name": "…"}.
func byName[T any](fn func(context.Context, string) (T, error)) queue.Verb {
	return func(ctx context.Context, data []byte) (any, error) {
		var request named
		if err := json.Unmarshal(data, &request); err != nil || request.Name == "" {
			return nil, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "name", Reason: `is missing: the request is {"name": "…"}`}}}
		}
		return fn(ctx, request.Name)
	}
}
