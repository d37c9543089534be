package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/deadletter"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/record"
)

// Cancel asks for a job to end. A job that no worker runs is finished at once.
// For one that is executing, its worker is notified; the returned record says
// which. For a job that has ended the error is [jobs.ErrFinished].
func (q *Queue) Cancel(ctx context.Context, id, by string) (jobs.Record, error) {
	for {
		e, err := q.Find(ctx, id)
		if err != nil {
			return jobs.Record{}, fmt.Errorf("cancel: %w", err)
		}
		if e.State == jobs.Finished {
			return e.Record, fmt.Errorf("cancel job %s: %w", e.ID, jobs.ErrFinished)
		}
		rec, err := q.cancel(ctx, e, by)
		if !isConflict(err) {
			return rec, err
		}
	}
}

func (q *Queue) cancel(ctx context.Context, e record.Entry, by string) (jobs.Record, error) {
	if e.Cancel == nil {
		e.Cancel = &jobs.Cancel{By: by, At: time.Now().UTC()}
	}
	if e.State == jobs.Executing {
		e, err := q.put(ctx, e)
		if err != nil {
			return e.Record, err
		}
		// Should it be lost, the worker's next heartbeat finds out.
		return e.Record, q.nudge(e.Record)
	}
	return q.end(ctx, e, cancelled(e.Record))
}

// withdraw removes a job's message and schedule.
func (q *Queue) withdraw(ctx context.Context, rec jobs.Record) error {
	if err := q.conn.Purge(ctx, subject.Schedules, q.names.Sched(rec.Tenant, rec.ID)); err != nil {
		return fmt.Errorf("withdraw the schedule of job %s: %w", rec.ID, err)
	}
	err := q.conn.Purge(ctx, subject.QueueStream(rec.Class, rec.Lane), q.names.Queue(rec.Class, rec.Lane, rec.Tenant, rec.ID))
	if err != nil {
		return fmt.Errorf("withdraw job %s from its queue: %w", rec.ID, err)
	}
	return nil
}

// conclude does what follows a terminal record. It may be repeated.
func (q *Queue) conclude(ctx context.Context, rec jobs.Record) error {
	if deadletter.Has(rec) && !rec.Purging {
		if err := q.DeadLetters().KeepJob(ctx, rec); err != nil {
			return err
		}
	}
	finish := q.finisher()
	if finish == nil || rec.Purging {
		return nil
	}
	if err := finish(ctx, rec); err != nil {
		return fmt.Errorf("announce the end of job %s: %w", rec.ID, err)
	}
	return nil
}
