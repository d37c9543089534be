package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

// Schedules are the cron schedules of the pool: what clients change of them, and what
// fires them.
type Schedules struct{ d *Dispatcher }

// Schedules returns the schedules of the dispatcher's pool.
func (d *Dispatcher) Schedules() Schedules { return Schedules{d} }

// Add validates a schedule and stores it. The broker has been asked to wake a
// dispatcher for the first firing when Add returns. A schedule that has the same name
// is an error, or is replaced if that is wanted.
func (s Schedules) Add(ctx context.Context, wanted calendar.Schedule, replace bool) (calendar.Record, error) {
	wanted = wanted.WithDefaults()
	err := wanted.Validate()
	if err == nil {
		err = template(s.d.check(wanted.Job))
	}
	if err == nil {
		err = template(s.d.references.salvage(ctx, wanted.Job))
	}
	if err != nil {
		return calendar.Record{}, err
	}
	return s.d.cfg.Queue.Timetable().Add(ctx, wanted, replace)
}

// template says of what is wrong with a schedule's job where it stands there.
func template(err error) error {
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	if !ok {
		return err
	}
	in := &jobs.InvalidError{What: "schedule"}
	for _, f := range invalid.Fields {
		in.Fields = append(in.Fields, jobs.FieldError{Field: "job." + f.Field, Reason: f.Reason})
	}
	return in
}

// Pause keeps a schedule from firing until it is resumed.
func (s Schedules) Pause(ctx context.Context, name, by string) (calendar.Record, error) {
	return s.d.cfg.Queue.Timetable().Change(ctx, name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Pause(by, now), nil
	})
}

// Resume lets a paused schedule fire again.
func (s Schedules) Resume(ctx context.Context, name string) (calendar.Record, error) {
	return s.d.cfg.Queue.Timetable().Change(ctx, name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Resume(now), nil
	})
}

// Run submits a schedule's job now, also while it is paused or its last
// job goes on. Its calendar stays as it is. The job has the id that was chosen, unless
// that is empty: the same id again is the same run. It is part of the trace.
func (s Schedules) Run(ctx context.Context, name, chosen string, in jobs.Trace) (calendar.Record, error) {
	if err := checkChosen(chosen, jobs.Job{}); err != nil {
		return calendar.Record{}, err
	}
	id := cmp.Or(chosen, jobs.NewID()) // decided once: a repetition is the same run
	return s.d.cfg.Queue.Timetable().Change(ctx, name, func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		run := rec.Manual(id, now)
		if rec.Last != nil && rec.Last.Run == run.Run {
			return rec, nil
		}
		answer, err := s.d.submit(ctx, id, rec.Instance(run).In(in), "schedule")
		if err != nil {
			return rec, template(err)
		}
		run.Job = answer.ID
		return rec.After(run), nil
	})
}

// fire works on the next firing of a schedule. The job comes first and the
// record after it: a crash between the two repeats the firing, whose job is
// there then.
func (s Schedules) fire(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
	f, about, err := s.firing(ctx, rec, now)
	if err != nil {
		return rec, err
	}
	s.d.log.With(about...).Info("schedule fired", "schedule", rec.Name, "at", f.At, "skipped", f.Skipped)
	return rec.After(f), nil
}

// firing makes the job of the next firing, or says why there is none. About is what the log
// says of the job: names and values.
func (s Schedules) firing(ctx context.Context, rec calendar.Record, now time.Time) (f calendar.Firing, about []any, err error) {
	f = rec.Firing(now)
	// A firing that was begun is finished, whatever has changed since.
	begun, err := s.d.cfg.Queue.HasKey(ctx, f.Run)
	if err != nil {
		return f, nil, fmt.Errorf("look for the job of %s: %w", f.Run, err)
	}
	if !begun {
		if f, err = s.skip(ctx, rec, f); err != nil || f.Skipped != "" {
			return f, nil, err
		}
	}
	made, err := s.d.submit(ctx, jobs.NewID(), rec.Instance(f), "schedule")
	if code := jobs.Code(err); code == jobs.CodeInvalid || code == jobs.CodeQuota {
		// It was valid when it was added; what it names has gone since, or others are in its place.
		f.Skipped, f.Message = calendar.SkippedInvalid, err.Error()
		return f, nil, nil
	}
	f.Job = made.ID
	return f, made.rec.LogFields(), err
}

// skip says in the firing why it makes no job, if that is so.
func (s Schedules) skip(ctx context.Context, rec calendar.Record, f calendar.Firing) (calendar.Firing, error) {
	if rec.Late(f) {
		f.Skipped, f.Message = calendar.SkippedMissed, fmt.Sprintf("%v late, which is more than %v", f.Fired.Sub(f.At).Round(time.Second), time.Duration(rec.Grace))
		return f, nil
	}
	if rec.Overlap == calendar.OverlapAllow || rec.LastJob == "" {
		return f, nil
	}
	last, err := s.d.cfg.Queue.Get(ctx, rec.LastJob)
	switch {
	case errors.Is(err, jobs.ErrNotFound): // finished so long ago that it is kept no more
		return f, nil
	case err != nil:
		return f, fmt.Errorf("look at the last job: %w", err)
	case last.State != jobs.Finished:
		f.Skipped, f.Message = calendar.SkippedOverlap, fmt.Sprintf("job %s is %s", last.ID, last.State)
	}
	return f, nil
}

func (s Schedules) repair(ctx context.Context) error {
	armed, err := s.d.cfg.Queue.Timetable().Repair(ctx)
	for _, name := range armed {
		s.d.log.Info("armed again", "schedule", name)
	}
	if err != nil {
		return fmt.Errorf("repair schedules: %w", err)
	}
	return nil
}
