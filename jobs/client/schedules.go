package client

import (
	"context"
	"iter"

	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Schedules asks about jobs that are submitted by the calendar.
type Schedules struct{ c *Client }

// Schedules returns the operations on schedules.
func (c *Client) Schedules() Schedules { return Schedules{c} }

// Add adds a schedule. If there is one of that name, it is an error.
func (s Schedules) Add(ctx context.Context, wanted calendar.Schedule) (calendar.Record, error) {
	return Ask(ctx, s.c, operation.ScheduleAdd, wanted)
}

// Replace adds a schedule, or replaces the one of that name.
func (s Schedules) Replace(ctx context.Context, wanted calendar.Schedule) (calendar.Record, error) {
	return Ask(ctx, s.c, operation.ScheduleReplace, wanted)
}

// List returns the schedules by name.
func (s Schedules) List(ctx context.Context) iter.Seq2[calendar.Record, error] {
	return pages("", func(after string) ([]calendar.Record, string, error) {
		page, err := Ask(ctx, s.c, operation.ScheduleList, operation.PageRequest{After: after})
		return page.Schedules, page.Next, err
	})
}

// Get returns a schedule, its next firing and its last one.
func (s Schedules) Get(ctx context.Context, name string) (calendar.Record, error) {
	return Ask(ctx, s.c, operation.ScheduleGet, operation.Named{Name: name})
}

// Pause lets a schedule fire no more until it is resumed.
func (s Schedules) Pause(ctx context.Context, name string) (calendar.Record, error) {
	return Ask(ctx, s.c, operation.SchedulePause, operation.Named{Name: name})
}

// Resume lets a paused schedule fire again.
func (s Schedules) Resume(ctx context.Context, name string) (calendar.Record, error) {
	return Ask(ctx, s.c, operation.ScheduleResume, operation.Named{Name: name})
}

// Run submits a schedule's job now; its calendar stays as it is. The record that it
// returns names the job. As [Client.Submit] does, it asks again where no answer comes,
// which makes no other job.
func (s Schedules) Run(ctx context.Context, name string) (calendar.Record, error) {
	return makeJob[calendar.Record](ctx, s.c, newCall(s.c, operation.ScheduleRun.Row, operation.Named{Name: name}), s.c.newJobID())
}

// Remove removes a schedule; the jobs that it made stay.
func (s Schedules) Remove(ctx context.Context, name string) error {
	_, err := Ask(ctx, s.c, operation.ScheduleRemove, operation.Named{Name: name})
	return err
}
