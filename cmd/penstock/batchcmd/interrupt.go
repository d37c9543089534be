package batchcmd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// stopWithin is how long an interrupted batch asks the pool which jobs continue.
const stopWithin = 30 * time.Second

// An interruption is the end of a batch whose user has stopped the command.
type interruption struct {
	batch  *batch
	pool   *pool.Pool
	cancel bool // the jobs that are left
}

// finish says what becomes of the jobs of the batch, and with --cancel-on-interrupt ends
// them.
func (i interruption) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	id := i.batch.id()
	if i.cancel {
		i.batch.shell.Err.Printf("penstock: interrupted; cancelling the jobs of batch %s (interrupt again to leave them and exit at once)\n", id)
		n, err := i.cancelRest(ctx)
		if err != nil {
			return cli.Fail(cli.ExitInterrupted, "penstock batch cancel "+i.batch.where+" tries again", "interrupted; the results so far are kept, but not all jobs were cancelled: %w", err)
		}
		return cli.Fail(cli.ExitInterrupted, "run the same command again to continue", "interrupted; the results so far are kept, and %d jobs were cancelled", n)
	}
	if i.pool.Own() { // which ends with this command
		return cli.Fail(cli.ExitInterrupted, "run the same command again to continue", "interrupted; the results so far are kept")
	}
	i.batch.shell.Err.Printf("penstock: interrupted; asking the pool which jobs continue (interrupt again to exit at once)\n")
	list, err := pool.Collect(i.pool.Client.List(ctx, operation.ListRequest{Batch: id}))
	if err != nil {
		return cli.Fail(cli.ExitInterrupted, i.onward(), "interrupted; the results so far are kept, and the pool does not say which jobs continue: %w", err)
	}
	running, waiting := 0, 0
	for _, rec := range list {
		switch {
		case rec.State == jobs.Executing:
			running++
		case rec.State != jobs.Finished:
			waiting++
		}
	}
	if running+waiting == 0 {
		return cli.Fail(cli.ExitInterrupted, "run the same command again to continue", "interrupted; the results so far are kept, and the pool has no more jobs of the batch")
	}
	return cli.Fail(cli.ExitInterrupted, i.onward(), "interrupted; the results so far are kept, and %d jobs continue in the pool: %d run, %d wait", running+waiting, running, waiting)
}

func (i interruption) onward() string {
	return "penstock batch ls watches them, penstock batch cancel " + i.batch.where + " ends them, the same command again waits for them and continues"
}

// cancelRest cancels the remaining jobs of the batch, so that the same command submits
// them again. The pool cancels some of them itself as soon as it notices, so both
// count: those cancelled here, and those whose records say so.
func (i interruption) cancelRest(ctx context.Context) (int, error) {
	id := i.batch.id()
	changed, err := i.pool.Client.As("batch").Batches().Cancel(ctx, id)
	list, unread := pool.Collect(i.pool.Client.List(ctx, operation.ListRequest{Batch: id}))
	for _, rec := range list {
		if rec.Outcome == jobs.Cancellation {
			changed = append(changed, rec)
		}
	}
	found := map[string]bool{}
	for _, rec := range changed {
		// A job of an earlier round of the item has another key.
		if rec.Key == i.batch.items[rec.Item].Key && !i.batch.dir.Done(rec.Item) {
			found[rec.Item] = true
		}
	}
	items := slices.Sorted(maps.Keys(found))
	return len(items), errors.Join(err, unread, i.batch.dir.Renew(items))
}
