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

// AddSchedule validates a schedule and stores it; the broker has been asked to
// wake a dispatcher for its first firing when AddSchedule returns. One that has
// its name is an error, or replaced if that is wanted.
func (d *Dispatcher) AddSchedule(ctx context.Context, s calendar.Schedule, replace bool) (calendar.Record, error) {
	s = s.WithDefaults()
	err := s.Validate()
	if err == nil {
		err = template(d.check(s.Job))
	}
	if err == nil {
		err = template(d.checkSalvage(ctx, s.Job))
	}
	if err != nil {
		return calendar.Record{}, err
	}
	return d.cfg.Queue.AddSchedule(ctx, s, replace)
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

// PauseSchedule keeps a schedule from firing until it is resumed.
func (d *Dispatcher) PauseSchedule(ctx context.Context, name, by string) (calendar.Record, error) {
	return d.cfg.Queue.ChangeSchedule(ctx, name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Pause(by, now), nil
	})
}

// ResumeSchedule lets a paused schedule fire again.
func (d *Dispatcher) ResumeSchedule(ctx context.Context, name string) (calendar.Record, error) {
	return d.cfg.Queue.ChangeSchedule(ctx, name, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Resume(now), nil
	})
}

// RunSchedule submits a schedule's job now, also while it is paused or its last
// job goes on. Its calendar stays as it is. The job has the id that was chosen, unless
// that is empty: the same id again is the same run.
func (d *Dispatcher) RunSchedule(ctx context.Context, name, chosen string) (calendar.Record, error) {
	if err := checkChosen(chosen, jobs.Job{}); err != nil {
		return calendar.Record{}, err
	}
	id := cmp.Or(chosen, jobs.NewID()) // decided once: a repetition is the same run
	return d.cfg.Queue.ChangeSchedule(ctx, name, func(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		run := rec.Manual(id, now)
		if rec.Last != nil && rec.Last.Run == run.Run {
			return rec, nil
		}
		answer, err := d.submit(ctx, id, rec.Instance(run), "schedule")
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
func (d *Dispatcher) fire(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
	f, err := d.firing(ctx, rec, now)
	if err != nil {
		return rec, err
	}
	d.log.Info("schedule fired", "schedule", rec.Name, "at", f.At, "job", f.Job, "skipped", f.Skipped)
	return rec.After(f), nil
}

func (d *Dispatcher) firing(ctx context.Context, rec calendar.Record, now time.Time) (calendar.Firing, error) {
	f := rec.Firing(now)
	// A firing that was begun is finished, whatever has changed since.
	begun, err := d.cfg.Queue.HasKey(ctx, f.Run)
	if err != nil {
		return f, fmt.Errorf("look for the job of %s: %w", f.Run, err)
	}
	if !begun {
		if f, err = d.skip(ctx, rec, f); err != nil || f.Skipped != "" {
			return f, err
		}
	}
	answer, err := d.Submit(ctx, rec.Instance(f), "schedule")
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
		// It was valid when it was added; what it names has gone since.
		f.Skipped, f.Message = calendar.SkippedInvalid, invalid.Error()
		return f, nil
	}
	f.Job = answer.ID
	return f, err
}

// skip says in the firing why it makes no job, if that is so.
func (d *Dispatcher) skip(ctx context.Context, rec calendar.Record, f calendar.Firing) (calendar.Firing, error) {
	if rec.Late(f) {
		f.Skipped, f.Message = calendar.SkippedMissed, fmt.Sprintf("%v late, which is more than %v", f.Fired.Sub(f.At).Round(time.Second), time.Duration(rec.Grace))
		return f, nil
	}
	if rec.Overlap == calendar.OverlapAllow || rec.LastJob == "" {
		return f, nil
	}
	last, err := d.cfg.Queue.Get(ctx, rec.LastJob)
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

func (d *Dispatcher) repairSchedules(ctx context.Context) error {
	armed, err := d.cfg.Queue.RepairSchedules(ctx)
	for _, name := range armed {
		d.log.Info("armed again", "schedule", name)
	}
	if err != nil {
		return fmt.Errorf("repair schedules: %w", err)
	}
	return nil
}
