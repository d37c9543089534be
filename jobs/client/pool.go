package client

import (
	"context"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
)

// pages returns the entries of a list that comes in pages. Ask returns the page that
// begins behind a cursor, and the cursor of the next page, which is empty if there is
// none.
func pages[T any](after string, ask func(after string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			page, next, err := ask(after)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, entry := range page {
				if !yield(entry, nil) {
					return
				}
			}
			if after = next; next == "" {
				return
			}
		}
	}
}

// Workers lists the workers that are alive.
func (c *Client) Workers(ctx context.Context) ([]why.Worker, error) {
	answer, err := Ask(ctx, c, operation.Workers, operation.Nothing{})
	return answer.Workers, err
}

// A Worker asks about one worker of the pool.
type Worker struct {
	c    *Client
	name string
}

// Worker returns the operations on the worker of a name.
func (c *Client) Worker(name string) Worker { return Worker{c, name} }

// Get returns the worker, if it is alive.
func (w Worker) Get(ctx context.Context) (why.Worker, error) {
	return Ask(ctx, w.c, operation.WorkerGet, operation.Named{Name: w.name})
}

// Drain has the worker claim no more jobs; jobs that run go on. It returns at once: the
// field Drain of what Get returns is confirmed when the worker has read the request.
func (w Worker) Drain(ctx context.Context) (why.Worker, error) {
	return Ask(ctx, w.c, operation.WorkerDrain, operation.Named{Name: w.name})
}

// Resume lets the worker claim jobs again. It returns at once: what Get returns has no
// Drain when the worker has read the request.
func (w Worker) Resume(ctx context.Context) (why.Worker, error) {
	return Ask(ctx, w.c, operation.WorkerResume, operation.Named{Name: w.name})
}

// Queues asks about queues, and about what else keeps jobs from running: pauses and
// caps.
type Queues struct{ c *Client }

// Queues returns the operations on queues, pauses and caps.
func (c *Client) Queues() Queues { return Queues{c} }

// List returns the queues that hold jobs or are paused, by name.
func (q Queues) List(ctx context.Context) iter.Seq2[operation.Queue, error] {
	return pages("", func(after string) ([]operation.Queue, string, error) {
		page, err := Ask(ctx, q.c, operation.QueueList, operation.PageRequest{After: after})
		return page.Queues, page.Next, err
	})
}

// Stats counts jobs, of all queues or of those of the request: what is held now, and over
// a window what has ended.
func (q Queues) Stats(ctx context.Context, request operation.StatsRequest) (operation.PoolStats, error) {
	var all []operation.QueueStats
	for {
		page, err := Ask(ctx, q.c, operation.Stats, request)
		if err != nil {
			return page, err
		}
		all = append(all, page.ByQueue...)
		if request.After = page.Next; page.Next == "" {
			page.ByQueue = all
			return page, nil
		}
	}
}

// Pause lets no more jobs of a queue begin; jobs that run go on.
func (q Queues) Pause(ctx context.Context, request operation.PauseRequest) (jobs.Hold, error) {
	return Ask(ctx, q.c, operation.QueuePause, request)
}

// Resume ends the pause of a queue, and returns all pauses that are left.
func (q Queues) Resume(ctx context.Context, name string) ([]jobs.Hold, error) {
	left, err := Ask(ctx, q.c, operation.QueueResume, operation.Named{Name: name})
	return left.Holds, err
}

// Holds lists the pauses in force, of queues and of batches.
func (q Queues) Holds(ctx context.Context) ([]jobs.Hold, error) {
	answer, err := Ask(ctx, q.c, operation.Holds, operation.Nothing{})
	return answer.Holds, err
}

// Caps lists the limits on how many jobs run at once, and how many run now.
func (q Queues) Caps(ctx context.Context) ([]schedule.CapUse, error) {
	answer, err := Ask(ctx, q.c, operation.Caps, operation.Nothing{})
	return answer.Caps, err
}

// Budgets lists what jobs with something in common may spend together, and what is left of
// that: the budgets of the pool, and that of the request's batch.
func (q Queues) Budgets(ctx context.Context, request operation.BudgetRequest) ([]operation.Budget, error) {
	answer, err := Ask(ctx, q.c, operation.Budgets, request)
	return answer.Budgets, err
}

// Batches asks about batches.
type Batches struct{ c *Client }

// Batches returns the operations on batches.
func (c *Client) Batches() Batches { return Batches{c} }

// List returns the batches that the pool has jobs of, the oldest first.
func (b Batches) List(ctx context.Context) iter.Seq2[operation.Batch, error] {
	return pages("", func(after string) ([]operation.Batch, string, error) {
		page, err := Ask(ctx, b.c, operation.BatchList, operation.PageRequest{After: after})
		return page.Batches, page.Next, err
	})
}

// Get counts the jobs of a batch, by state and by outcome.
func (b Batches) Get(ctx context.Context, name string) (operation.Batch, error) {
	return Ask(ctx, b.c, operation.BatchGet, operation.Named{Name: name})
}

// Report says what the jobs of a batch came to: outcomes and reasons, cost, times, and where
// their patches meet.
func (b Batches) Report(ctx context.Context, name string) (report.Report, error) {
	return Ask(ctx, b.c, operation.BatchReport, operation.Named{Name: name})
}

// Cancel ends all jobs of a batch, and those that are still submitted for it. It returns
// the jobs that it has cancelled, with an error too.
func (b Batches) Cancel(ctx context.Context, name string) ([]jobs.Record, error) {
	var cancelled []jobs.Record
	for {
		part, err := Ask(ctx, b.c, operation.BatchCancel, operation.Named{Name: name})
		cancelled = append(cancelled, part.Jobs...)
		if err != nil || !part.More {
			return cancelled, err
		}
	}
}

// Pause lets no more jobs of a batch begin; jobs that run go on.
func (b Batches) Pause(ctx context.Context, request operation.PauseRequest) (jobs.Hold, error) {
	return Ask(ctx, b.c, operation.BatchPause, request)
}

// Resume ends the pause of a batch, and returns all pauses that are left.
func (b Batches) Resume(ctx context.Context, name string) ([]jobs.Hold, error) {
	left, err := Ask(ctx, b.c, operation.BatchResume, operation.Named{Name: name})
	return left.Holds, err
}

// DeadLetters asks about jobs that the pool has given up on, submissions that it
// refused, and messages that it could not read.
type DeadLetters struct{ c *Client }

// DeadLetters returns the operations on dead letters.
func (c *Client) DeadLetters() DeadLetters { return DeadLetters{c} }

// List returns the dead letters that a request selects, the oldest first, page by page,
// of as many as its limit says. Those that it has returned may be dropped or retried
// meanwhile.
func (d DeadLetters) List(ctx context.Context, request operation.DeadRequest) iter.Seq2[jobs.DeadLetter, error] {
	return pages(request.After, func(after string) ([]jobs.DeadLetter, string, error) {
		request.After = after
		page, err := Ask(ctx, d.c, operation.DeadList, request)
		return page.Letters, page.Next, err
	})
}

// Get returns a dead letter with what is still there of its job, and up to so many of
// the job's last events.
func (d DeadLetters) Get(ctx context.Context, id string, events int) (operation.DeadShown, error) {
	return Ask(ctx, d.c, operation.DeadGet, operation.DeadShowRequest{ID: id, Events: events})
}

// Retry runs a dead job again, or submits a refused submission again. With fromSalvage
// the job begins from what was saved of an earlier attempt.
func (d DeadLetters) Retry(ctx context.Context, id string, fromSalvage bool) (operation.DeadDone, error) {
	return Ask(ctx, d.c, operation.DeadRetry, operation.DeadRetryRequest{ID: id, FromSalvage: fromSalvage})
}

// Drop removes a dead letter; its job stays as it is.
func (d DeadLetters) Drop(ctx context.Context, id string) (operation.DeadDone, error) {
	return Ask(ctx, d.c, operation.DeadDrop, operation.Ref{ID: id})
}
