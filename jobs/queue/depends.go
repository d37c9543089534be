package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/record"
)

// Depend looks at a job that waits for others. When all have succeeded it may
// begin; when one has ended otherwise it is skipped; else the jobs that it
// waits for are returned. It may be repeated, and called for any job.
func (q *Queue) Depend(ctx context.Context, id string) (open []string, err error) {
	for {
		e, err := q.Read(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) || err == nil && !e.Dependent() {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		open, failed, err := q.Dependencies(ctx, e.Record)
		switch {
		case err != nil:
			return nil, err
		case failed != "":
			_, err = q.end(ctx, e, jobs.DependencyFailed.Ended(failed))
		case len(open) > 0:
			return open, nil
		default:
			e.Record = e.Released(time.Now())
			if e, err = q.put(ctx, e); err == nil {
				err = q.Enqueue(ctx, e.Record)
			}
		}
		if isConflict(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("job %s, which depends on others: %w", id, err)
		}
		return nil, nil
	}
}

// end finishes a job that no worker runs.
func (q *Queue) end(ctx context.Context, e record.Entry, end jobs.Ended) (jobs.Record, error) {
	// A parked or delayed job has no message, nor has one of the backlog, or one
	// whose submitter has died. With one, the next claimer finishes what a crash
	// of this process leaves undone. A full queue must not keep a job in it.
	if err := q.offer(ctx, e.Record); err != nil && !errors.Is(err, jobs.ErrFull) {
		return e.Record, err
	}
	e.Record, _ = e.After(end, time.Now())
	e, err := q.put(ctx, e)
	if err != nil {
		return e.Record, err
	}
	hook(q.cfg.Hooks.Settled, e.Record)
	if err := q.conclude(ctx, e.Record); err != nil {
		return e.Record, err
	}
	return e.Record, q.withdraw(ctx, e.Record)
}
