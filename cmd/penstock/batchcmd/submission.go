package batchcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/record"
)

// A submission takes items of a batch to the pool, each from its job to its line in the
// results.
type submission struct {
	batch   *batch
	pool    *pool.Pool
	tally   *tally
	display display
	// strictKey refuses an item whose key belongs to a job that differs from it.
	strictKey bool

	waits  map[string]chan jobs.Record // by item; filled before anything is submitted
	asking chan struct{}               // has a value for each item that is being submitted or collected
	stop   context.CancelCauseFunc
}

// atOnce is how many items are submitted or collected at the same time, of the window that are
// in the pool. A thousand at once gain nothing, cost memory, and wait so long for a busy
// pool that they ask again.
const atOnce = 32

// run submits the missing items, no more than window at once, and waits until each has a
// result or the batch is stopped.
func (s *submission) run(ctx context.Context, missing []string, window int) error {
	ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	s.waits, s.asking = map[string]chan jobs.Record{}, make(chan struct{}, atOnce)
	for _, item := range missing {
		s.waits[item] = make(chan jobs.Record, 1)
	}
	watching, done := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { return s.watch(watching) })
	watch.Go(func() error { return s.display.keep(watching, s.pool.Log) })

	var g errgroup.Group
	g.SetLimit(window)
	for _, item := range missing {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := s.item(ctx, item); err != nil {
				s.stop(err)
			}
			return nil
		})
	}
	err := g.Wait()
	done()
	err = pool.Cause(ctx, errors.Join(err, watch.Wait()))
	if cli.Code(err) == cli.ExitStopped {
		_, cancelled := s.pool.Client.As("batch").Batches().Cancel(context.WithoutCancel(ctx), s.batch.id())
		err = errors.Join(err, cancelled)
	}
	return err
}

// watch sends each finished job to the goroutine that waits for it.
func (s *submission) watch(ctx context.Context) error {
	for rec, err := range s.pool.Watch(ctx, record.Filter{Batch: s.batch.id()}) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			s.stop(err)
			return nil
		}
		s.display.note(rec)
		wait, ours := s.waits[rec.Item]
		// A job of an earlier round of the item has another key.
		if !ours || rec.State != jobs.Finished || rec.Key != s.batch.items[rec.Item].Key {
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
func (s *submission) item(ctx context.Context, item string) error {
	if err := s.inTurn(ctx, func() error { return s.submit(ctx, item) }); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case rec := <-s.waits[item]:
		return s.inTurn(ctx, func() error { return s.collect(ctx, rec) })
	}
}

// inTurn does one of the steps of which there are few at the same time; none once ctx has ended.
func (s *submission) inTurn(ctx context.Context, step func() error) error {
	select {
	case <-ctx.Done():
		return nil
	case s.asking <- struct{}{}:
	}
	defer func() { <-s.asking }()
	return step()
}

func (s *submission) submit(ctx context.Context, item string) error {
	answer, err := s.pool.Submit(ctx, s.batch.items[item].In(jobflags.Trace()), "batch")
	if err == nil && s.strictKey {
		err = jobflags.RefuseDiffering(s.batch.items[item], answer)
	}
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", item, err))
	}
	return nil
}

// collect writes a finished job's files into the results directory.
func (s *submission) collect(ctx context.Context, rec jobs.Record) error {
	// A record is final before its session's last event is stored. After Wait it is, so
	// that no log in the directory ends before its job.
	result, err := s.pool.Client.Wait(ctx, rec.ID)
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", rec.Item, err))
	}
	var patch bytes.Buffer
	if err := patches.Write(ctx, s.pool, rec, &patch); err != nil {
		return fmt.Errorf("item %s: %w", rec.Item, err)
	}
	err = s.batch.dir.Add(ctx, result, &patch, s.pool.Client.Events(ctx, rec.ID, 0))
	if err != nil {
		return pool.Cause(ctx, fmt.Errorf("item %s: %w", rec.Item, err))
	}
	stop := s.tally.count(result)
	s.display.ended(result)
	return stop
}
