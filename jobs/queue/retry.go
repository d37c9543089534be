package queue

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// Retry makes a job that has finished without success pending again, with all
// its attempts before it, and enqueues it. Announce, which may be nil, says so
// before: a pending job may be claimed at once. It may be called again for a job
// that changes meanwhile.
//
// With fromSalvage its attempts begin from what was saved of an earlier one.
func (q *Queue) Retry(ctx context.Context, id string, fromSalvage bool, announce func(context.Context, jobs.Record) error) (jobs.Record, error) {
	for {
		e, err := q.Find(ctx, id)
		if err != nil {
			return jobs.Record{}, fmt.Errorf("retry: %w", err)
		}
		if e.State != jobs.Finished || e.Outcome == jobs.Success {
			return e.Record, &NotRetryableError{e.ID, e.State, e.Outcome}
		}
		if announce != nil {
			if err := announce(ctx, e.Record); err != nil {
				return e.Record, err
			}
		}
		e.Record = e.Afresh()
		e.FromSalvage = fromSalvage
		e, err = q.put(ctx, e)
		if isConflict(err) {
			continue
		}
		if err == nil {
			err = q.replace(ctx, e.Record)
		}
		if err != nil {
			return e.Record, fmt.Errorf("retry: %w", err)
		}
		if err := q.DeadLetters().DropJob(ctx, e.Record); err != nil {
			return e.Record, err
		}
		return e.Record, q.Enqueue(ctx, e.Record)
	}
}

// Resume makes a finished job pending again, to go on with the conversation in
// the capsule of an epoch. Rec is the record that this was decided on: a job that
// has moved since is left as it is. It is for the caller to enqueue it.
func (q *Queue) Resume(ctx context.Context, rec jobs.Record, epoch uint64) (jobs.Record, error) {
	for {
		e, err := q.Read(ctx, rec.ID)
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
		if err == nil {
			err = q.replace(ctx, e.Record)
		}
		if err != nil {
			return e.Record, fmt.Errorf("resume: %w", err)
		}
		return e.Record, q.DeadLetters().DropJob(ctx, e.Record)
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
