package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// unbounded is how many jobs of a batch wait at once in a shared pool without a limit
// of the user's.
const unbounded = 1000

// A batchRun is one call of batch run: the items that are missing, each from
// its submission to its line in the results.
type batchRun struct {
	*app
	pool  *pool.Pool
	dir   *results.Dir
	items map[string]jobs.Job
	where string // the directory, as the user named it
	max   int    // failures that are too many; 0 for no bound
	// strictKey refuses an item whose key belongs to a job that differs from it.
	strictKey bool
	lines     *cli.Progress     // if progress is written in lines
	board     *transcript.Batch // where it is drawn; else nil
	// cancel the jobs that are left when the user interrupts the batch.
	cancel bool

	waits map[string]chan jobs.Record // by item; filled before anything is submitted
	stop  context.CancelCauseFunc

	mu       sync.Mutex
	outcomes map[jobs.Outcome]int
	running  map[string]bool
	cost     float64
	row      int // hopeless ends since the last other one
}

func (a *app) runBatch(ctx context.Context, items intake.Items, flags batchFlags) error {
	bad := invalidItems(items.Errors())
	if bad != nil {
		return bad
	}
	dir, err := results.Open(flags.out, manifest(items, flags))
	if err != nil {
		return cli.Usage("", "%w", err)
	}
	b := &batchRun{app: a, dir: dir, where: flags.out, max: flags.maxFailures, cancel: flags.cancelOnInterrupt, strictKey: flags.StrictKey, outcomes: map[jobs.Outcome]int{}, running: map[string]bool{}}
	if flags.redo != "" {
		if _, err := dir.Redo(flags.redo); err != nil {
			return errors.Join(cli.Usage("use failed, error, all or item ids", "--redo: %w", err), dir.Close())
		}
	}
	b.items = map[string]jobs.Job{}
	for _, item := range items.InBatch(dir.Manifest().ID, dir.Key).Items {
		b.items[item.ID] = item.Job
	}
	if err = b.pin(ctx, flags); err == nil {
		err = b.run(ctx, flags.maxParallel)
	}
	return errors.Join(err, dir.Close())
}

// run does what is missing and writes the reports, also when it is stopped.
func (b *batchRun) run(ctx context.Context, parallel int) error {
	missing := b.dir.Missing()
	b.lines = cli.NewProgress(b.err, b.progress)
	if b.progress.Moving(b.err) {
		b.board = transcript.NewBatch(b.err, missing, time.Now())
	}
	if len(missing) > 0 {
		working, err := b.begin(ctx, parallel)
		if err != nil {
			return err
		}
		err = b.work(working, missing, b.window(parallel))
		if errors.Is(err, context.Canceled) {
			err = b.interrupted(ctx)
		}
		err = errors.Join(err, b.pool.Close())
		return b.finish(err)
	}
	return b.finish(nil)
}

// begin opens the pool; where it is our own, a worker runs in it.
func (b *batchRun) begin(ctx context.Context, parallel int) (_ context.Context, err error) {
	b.pool, err = pool.Open(ctx, b.app.shell(), "batch run", pool.Hooks{})
	if err != nil {
		return nil, err
	}
	if err := b.unhold(ctx); err != nil {
		return nil, errors.Join(err, b.pool.Close())
	}
	b.pool.Outlast(b.app.shell())
	return b.serveOwn(ctx, b.pool, workerparts.Slots(parallel), slices.Collect(maps.Values(b.items))...)
}

func (b *batchRun) window(parallel int) int {
	switch {
	case parallel > 0:
		return parallel
	case b.pool.Own():
		return workerparts.Slots(0)
	}
	return unbounded
}

func (b *batchRun) work(ctx context.Context, missing []string, window int) error {
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	b.waits = map[string]chan jobs.Record{}
	for _, item := range missing {
		b.waits[item] = make(chan jobs.Record, 1)
	}
	watching, done := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { return b.watch(watching) })
	if b.board != nil {
		watch.Go(func() error { return b.draw(watching) })
		watch.Go(func() error { return b.askDoing(watching) })
	}

	var g errgroup.Group
	g.SetLimit(window)
	for _, item := range missing {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := b.item(ctx, item); err != nil {
				b.stop(err)
			}
			return nil
		})
	}
	err := g.Wait()
	done()
	err = pool.Cause(ctx, errors.Join(err, watch.Wait()))
	if cli.Code(err) == cli.ExitStopped {
		_, cancelled := b.pool.Client.As("batch").Batches().Cancel(context.WithoutCancel(ctx), b.dir.Manifest().ID)
		err = errors.Join(err, cancelled)
	}
	return err
}

// watch sends each finished job to the goroutine that waits for it.
func (b *batchRun) watch(ctx context.Context) error {
	for rec, err := range b.pool.Queue.Watch(ctx, queue.Filter{Batch: b.dir.Manifest().ID}) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			b.stop(err)
			return nil
		}
		b.note(rec)
		wait, ours := b.waits[rec.Item]
		// A job of an earlier round of the item has another key.
		if !ours || rec.State != jobs.Finished || rec.Key != b.items[rec.Item].Key {
			continue
		}
		select {
		case wait <- rec:
		default: // reported twice
		}
	}
	return nil
}

// item carries one item from its submission to its line in the results.
func (b *batchRun) item(ctx context.Context, item string) error {
	answer, err := b.pool.Submit(ctx, b.items[item], "batch")
	if err == nil && b.strictKey {
		err = jobflags.RefuseDiffering(b.items[item], answer)
	}
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", item, err))
	}
	select {
	case <-ctx.Done():
		return nil
	case rec := <-b.waits[item]:
		return b.collect(ctx, rec)
	}
}

// collect writes a finished job's files into the results directory.
func (b *batchRun) collect(ctx context.Context, rec jobs.Record) error {
	// A record is final before its session's last event is stored. After Wait it is, so
	// that no log in the directory ends before its job.
	result, err := b.pool.Client.Wait(ctx, rec.ID)
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", rec.Item, err))
	}
	var patch bytes.Buffer
	if err := patches.Write(ctx, b.pool, rec, &patch); err != nil {
		return fmt.Errorf("item %s: %w", rec.Item, err)
	}
	err = b.dir.Add(ctx, result, &patch, b.pool.Client.Events(ctx, rec.ID, 0))
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", rec.Item, err))
	}
	return b.count(result)
}
