package dispatcher

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/queue"
)

// scheduleVerbs are the requests of the bus about schedules.
func (d *Dispatcher) scheduleVerbs() map[string]queue.Verb {
	return map[string]queue.Verb{
		"schedule-add":     d.addVerb(false),
		"schedule-replace": d.addVerb(true),
		"schedule-list":    {Do: d.listVerb},
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
	return queue.Verb{Do: func(ctx context.Context, data []byte) (any, error) {
		var s calendar.Schedule
		err := jobs.DecodeStrict(data, &s)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
			invalid.What = "schedule"
		}
		if err != nil {
			return nil, err
		}
		return d.AddSchedule(ctx, s, replace)
	}}
}

// A page asks for a part of a list, which may be larger than a message: the
// first of those behind a name.
type page struct {
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

func (d *Dispatcher) listVerb(ctx context.Context, data []byte) (any, error) {
	var of page
	if len(data) > 0 {
		err := jobs.DecodeStrict(data, &of)
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
			invalid.What = "request"
		}
		if err != nil {
			return nil, err
		}
	}
	if of.Limit < 0 {
		return nil, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "limit", Reason: "is negative"}}}
	}
	list, err := d.cfg.Queue.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(rec calendar.Record) bool { return rec.Name <= of.After })
	if of.Limit > 0 && len(list) > of.Limit {
		list = list[:of.Limit]
	}
	return list, nil
}

type named struct {
	Name string `json:"name"`
}

// byName makes a verb of a function of a schedule's name. The request is
// {"name": "…"}.
func byName[T any](fn func(context.Context, string) (T, error)) queue.Verb {
	return queue.Verb{Do: func(ctx context.Context, data []byte) (any, error) {
		var request named
		if err := json.Unmarshal(data, &request); err != nil || request.Name == "" {
			return nil, &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "name", Reason: `is missing: the request is {"name": "…"}`}}}
		}
		return fn(ctx, request.Name)
	}}
}
