package queue

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/why"
)

// Why says what keeps a job where it is.
func (q *Queue) Why(ctx context.Context, id string) (why.Standing, error) {
	e, err := q.find(ctx, id)
	if err != nil {
		return why.Standing{}, err
	}
	f, err := q.facts(ctx, e)
	if err != nil {
		return why.Standing{}, fmt.Errorf("why job %s is %s: %w", e.ID, e.State, err)
	}
	return why.Of(f), nil
}

func (q *Queue) facts(ctx context.Context, e entry) (why.Facts, error) {
	f := why.Facts{Record: e.Record, Written: e.at}
	if e.State == jobs.Finished {
		return f, nil
	}
	// All at once, since each is a round trip or more.
	g, asking := errgroup.WithContext(ctx)
	g.Go(func() (err error) { f.Now, err = q.now(asking); return err })
	g.Go(func() (err error) { f.Lease, err = q.lane(asking, e.Class, e.Lane); return err })
	g.Go(func() (err error) { f.Queue, err = q.paused(asking, jobs.HoldQueue, e.Queue); return err })
	if e.Batch != "" {
		g.Go(func() (err error) { f.Batch, err = q.paused(asking, jobs.HoldBatch, e.Batch); return err })
	}
	if e.State == jobs.Pending {
		g.Go(func() (err error) { f.Workers, err = q.Workers(asking); return err })
	}
	err := g.Wait()
	switch {
	case err != nil:
		return f, err
	case e.Dependent():
		return f, q.open(ctx, e, &f)
	case e.State == jobs.Pending:
		return f, q.ahead(ctx, e, &f)
	}
	return f, nil
}

func (q *Queue) paused(ctx context.Context, kind jobs.HoldKind, name string) (*why.Pause, error) {
	h, err := q.hold(ctx, kind, name)
	if err != nil || h == nil || h.Cancel {
		return nil, err
	}
	return &why.Pause{By: h.By, At: h.At, Until: h.Until}, nil
}

// open finds the jobs that e waits for.
func (q *Queue) open(ctx context.Context, e entry, f *why.Facts) error {
	ids, failed, err := q.dependencies(ctx, e)
	if err != nil || failed != "" { // it ends as soon as a process looks
		return err
	}
	for _, id := range ids {
		on, err := q.read(ctx, id)
		if err != nil {
			return err
		}
		f.Open = append(f.Open, on.Record)
	}
	return nil
}

// pausedBy reports whether the queue or the batch of a job is paused.
func pausedBy(holds []jobs.Hold, rec jobs.Record) bool {
	return holding(holds, rec) || slices.ContainsFunc(holds, func(h jobs.Hold) bool { return h.Kind == jobs.HoldQueue && h.Name == rec.Queue })
}
