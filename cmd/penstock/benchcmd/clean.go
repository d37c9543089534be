package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// stop cancels what has not ended, removes what may be removed, and says what stays. It
// returns why the load has ended: failed, unless its context ended before its jobs.
func (r *run) stop(ctx context.Context, failed error) error {
	cause := context.Cause(ctx)
	if len(r.ended) == r.jobs {
		cause = nil
	}
	if len(r.open) > 0 {
		r.shell.Progressf("cancelling %d jobs (interrupt again to leave them and exit at once)", len(r.open))
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	err := r.cancelOpen(clean)
	for _, rec := range r.ended {
		r.drop(clean, rec)
	}
	r.shell.Progressf("records, events and results of batch %s stay as long as the settings of retention say", r.job.Batch)
	switch {
	case errors.Is(cause, errTimeout):
		failed = cli.Fail(cli.ExitTimeout, "--timeout gives them more time", "not finished after %v; %d jobs were cancelled", r.timeout, r.cancelled)
	case cause != nil:
		failed = cli.Fail(cli.ExitInterrupted, "", "interrupted; %d jobs were cancelled", r.cancelled)
	}
	if err != nil {
		err = fmt.Errorf("not all jobs were cancelled: %w", err)
	}
	return errors.Join(failed, err)
}

// cancelOpen cancels the jobs that have not ended, one by one: a submitter may not cancel a
// batch.
func (r *run) cancelOpen(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(r.clients)
	var cancelled atomic.Int64
	for id := range r.open {
		g.Go(func() error {
			_, err := r.pool.Client.Cancel(ctx, id)
			if errors.Is(err, jobs.ErrFinished) || errors.Is(err, jobs.ErrNotFound) { // or it never came to be
				return nil
			}
			if err == nil {
				cancelled.Add(1)
			}
			return err
		})
	}
	err := g.Wait()
	r.cancelled = int(cancelled.Load())
	return err
}

// drop removes the dead letter of a job that failed, where the role may: it is there to be
// looked at, and nobody waits for what this job did. Its record says why it failed.
func (r *run) drop(ctx context.Context, rec jobs.Record) {
	if rec.Outcome == jobs.Success || rec.Outcome == jobs.Skip || !r.pool.Client.May(operation.DeadDrop.Row) {
		return
	}
	if _, err := r.pool.Client.DeadLetters().Drop(ctx, rec.ID); err != nil && !errors.Is(err, jobs.ErrNotFound) {
		r.shell.Progressf("the dead letter of job %s stays: %v", rec.ID, err)
	}
}
