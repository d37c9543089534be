package batchcmd

import (
	"context"
	"errors"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

// A batch is the items of one results directory, with the job of each.
type batch struct {
	shell cli.Shell
	dir   *results.Dir
	where string              // the directory, as the user named it
	items map[string]jobs.Job // by item
}

// runItems runs the items that have no result yet, and writes the reports.
func runItems(ctx context.Context, shell cli.Shell, items intake.Items, flags runFlags) error {
	if err := invalidItems(items.Errors()); err != nil {
		return err
	}
	dir, err := results.Open(flags.out, manifest(shell.Release, items, flags))
	if err != nil {
		return cli.Usage("", "%w", err)
	}
	if flags.redo != "" {
		if _, err := dir.Redo(flags.redo); err != nil {
			return errors.Join(cli.Usage("use failed, error, all or item ids", "--redo: %w", err), dir.Close())
		}
	}
	b := &batch{shell: shell, dir: dir, where: flags.out, items: map[string]jobs.Job{}}
	for _, item := range items.InBatch(b.id(), dir.Key).Items {
		b.items[item.ID] = item.Job
	}
	if err = b.pin(ctx, flags); err == nil {
		err = b.run(ctx, flags)
	}
	return errors.Join(err, dir.Close())
}

func (b *batch) id() string { return b.dir.Manifest().ID }

// run does what is missing and writes the reports, also when it is stopped.
func (b *batch) run(ctx context.Context, flags runFlags) error {
	missing := b.dir.Missing()
	before, err := b.dir.Totals()
	if err != nil {
		return err
	}
	counts := newTally(b, flags, before)
	shown := newDisplay(b.shell, missing, counts)
	if len(missing) == 0 {
		return b.finish(shown, nil)
	}
	working, p, err := b.open(ctx, flags.maxParallel)
	if err != nil {
		return err
	}
	if !p.Own() {
		// A client only waits for others, and thousands of items are to fit into little memory.
		debug.SetGCPercent(clientGCPercent)
	}
	s := submission{batch: b, pool: p, tally: counts, display: shown, strictKey: flags.StrictKey}
	err = s.run(working, missing, window(p, flags.maxParallel))
	if errors.Is(err, context.Canceled) {
		err = interruption{batch: b, pool: p, cancel: flags.cancelOnInterrupt}.finish(ctx)
	}
	return b.finish(shown, errors.Join(err, p.Close()))
}

// clientGCPercent has the garbage of a client grow to half of what it uses: with 5,000 items it needs 88 MiB at
// most then, and 116 with the usual 100, in the same time.
const clientGCPercent = 50

// open opens the pool; if it is the command's own, a worker runs in it.
func (b *batch) open(ctx context.Context, parallel int) (context.Context, *pool.Pool, error) {
	p, err := pool.Open(ctx, b.shell, "batch run", pool.Hooks{})
	if err != nil {
		return nil, nil, err
	}
	if err := b.unhold(ctx, p); err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	p.Outlast(b.shell)
	working, err := localworker.Beside(ctx, b.shell, p, workerparts.Slots(parallel), slices.Collect(maps.Values(b.items))...)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	return working, p, nil
}

// unhold resumes a batch that was cancelled, because it is being run again, and says
// how to resume one that is paused.
func (b *batch) unhold(ctx context.Context, p *pool.Pool) error {
	id := b.id()
	holds, err := p.Client.Queues().Holds(ctx)
	for _, h := range holds {
		switch {
		case h.Kind != jobs.HoldBatch || h.Name != id:
		case h.Cancel:
			_, err = p.Client.Batches().Resume(ctx, id)
		default:
			b.shell.Err.Printf("penstock: batch %s is paused; penstock batch resume %s resumes it\n", id, b.where)
		}
	}
	return err
}

// unbounded is how many jobs of a batch wait at once in a shared pool without a limit
// of the user's.
const unbounded = 1000

// window is how many items are in the pool at once.
func window(p *pool.Pool, parallel int) int {
	switch {
	case parallel > 0:
		return parallel
	case p.Own():
		return workerparts.Slots(0)
	}
	return unbounded
}
