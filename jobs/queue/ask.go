package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// Cancel asks for a job to end. A job that no worker runs is finished at once.
// For one that is executing, its worker is notified; the returned record says
// which. For a job that has ended the error is [jobs.ErrFinished].
func (q *Queue) Cancel(ctx context.Context, id, by string) (jobs.Record, error) {
	for {
		e, err := q.find(ctx, id)
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

func (q *Queue) cancel(ctx context.Context, e entry, by string) (jobs.Record, error) {
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

// Retry makes a job that has finished without success pending again, with all
// its attempts before it. It enqueues the job once announce, which may be nil,
// has said so.
//
// With fromSalvage its attempts begin from what was saved of an earlier one.
func (q *Queue) Retry(ctx context.Context, id string, fromSalvage bool, announce func(context.Context, jobs.Record) error) (jobs.Record, error) {
	for {
		e, err := q.find(ctx, id)
		if err != nil {
			return jobs.Record{}, fmt.Errorf("retry: %w", err)
		}
		if e.State != jobs.Finished || e.Outcome == jobs.Success {
			return e.Record, &NotRetryableError{e.ID, e.State, e.Outcome}
		}
		e.Record = e.Afresh()
		e.FromSalvage = fromSalvage
		e, err = q.put(ctx, e)
		if isConflict(err) {
			continue
		}
		if err != nil {
			return e.Record, fmt.Errorf("retry: %w", err)
		}
		if err := q.Drop(ctx, q.letterOf(e.Record)); err != nil {
			return e.Record, err
		}
		if announce != nil {
			if err := announce(ctx, e.Record); err != nil {
				return e.Record, err
			}
		}
		return e.Record, q.Enqueue(ctx, e.Record)
	}
}

// Resume makes a finished job pending again, to go on with the conversation in
// the capsule of an epoch. Rec is the record that this was decided on: a job that
// has moved since is left as it is. It is for the caller to enqueue it.
func (q *Queue) Resume(ctx context.Context, rec jobs.Record, epoch uint64) (jobs.Record, error) {
	for {
		e, err := q.read(ctx, rec.ID)
		if err != nil {
			return jobs.Record{}, fmt.Errorf("resume: %w", err)
		}
		if e.State != jobs.Finished || rec.Finished == nil || !e.Finished.Equal(*rec.Finished) {
			return e.Record, nil
		}
		e.Record = e.Resumed(epoch)
		e, err = q.put(ctx, e)
		if isConflict(err) {
			continue
		}
		if err != nil {
			return e.Record, fmt.Errorf("resume: %w", err)
		}
		return e.Record, q.Drop(ctx, q.letterOf(e.Record))
	}
}

// A NotRetryableError says why a job cannot be tried again.
type NotRetryableError struct {
	ID      string
	State   jobs.State
	Outcome jobs.Outcome
}

// ErrorCode implements what [jobs.Code] asks for.
func (e *NotRetryableError) ErrorCode() jobs.ErrorCode { return jobs.CodeNotRetryable }

func (e *NotRetryableError) Error() string {
	if e.State != jobs.Finished {
		return fmt.Sprintf("job %s is %s: only a finished job can be retried", e.ID, e.State)
	}
	return fmt.Sprintf("job %s ended in %s: submit it again to run it once more", e.ID, e.Outcome)
}

// conclude does what follows a terminal record. It may be repeated.
func (q *Queue) conclude(ctx context.Context, rec jobs.Record) error {
	if dead(rec) {
		if err := bury(ctx, q.conn, q.letterOf(rec)); err != nil {
			return err
		}
	}
	finish := q.finisher()
	if finish == nil {
		return nil
	}
	if err := finish(ctx, rec); err != nil {
		return fmt.Errorf("announce the end of job %s: %w", rec.ID, err)
	}
	return nil
}
