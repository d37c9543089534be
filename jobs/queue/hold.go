package queue

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/record"
)

// Hold begins a hold, or replaces the one that is there.
func (q *Queue) Hold(ctx context.Context, h jobs.Hold) error {
	h.At = time.Now().UTC()
	if err := hold.Check(h.Kind, h.Name); err != nil {
		return err
	}
	// Written first: a process that makes a lane meanwhile looks here afterwards.
	if err := q.Holds().Put(ctx, h); err != nil {
		return err
	}
	if h.Kind == jobs.HoldQueue {
		return q.lanes.Pause(ctx, h.Name, hold.End(h))
	}
	return nil
}

// releaseAtOnce is how many jobs that were parked are brought back at a time.
const releaseAtOnce = 16

// Release ends a hold and brings back what it has parked, which list finds: [Queue.List], or
// what needs less for that. There need be none.
func (q *Queue) Release(ctx context.Context, kind jobs.HoldKind, name string, list func(context.Context, record.Filter) ([]jobs.Record, error)) error {
	if err := hold.Check(kind, name); err != nil {
		return err
	}
	if err := q.Holds().Remove(ctx, kind, name); err != nil {
		return err
	}
	if kind == jobs.HoldQueue {
		return q.lanes.Pause(ctx, name, time.Time{})
	}
	parked, err := list(ctx, record.Filter{Batch: name, State: jobs.Waiting})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(releaseAtOnce)
	for _, rec := range parked {
		g.Go(func() error { return q.unpark(ctx, rec.ID) })
	}
	return g.Wait()
}

// held keeps a job that is about to be claimed from beginning where its batch is
// held, and reports whether it did.
func (q *Queue) held(ctx context.Context, d delivery.Delivery, e record.Entry) (bool, error) {
	if e.Batch == "" {
		return false, nil
	}
	h, err := q.Holds().Get(ctx, jobs.HoldBatch, e.Batch)
	switch {
	case err != nil:
		return true, err
	case h == nil:
		return false, nil
	case h.Cancel:
		e.Cancel = &jobs.Cancel{By: h.By, At: h.At}
		return true, q.finish(ctx, d, e, cancelled(e.Record))
	}
	return true, q.park(ctx, d, e, *h)
}

// park takes a job out of its queue for as long as the hold lasts: one write
// and one acknowledgement, however long that is.
func (q *Queue) park(ctx context.Context, d delivery.Delivery, e record.Entry, h jobs.Hold) error {
	e.State, e.Worker, e.Beat, e.Hold = jobs.Waiting, "", 0, string(h.Kind)
	if e.Reason == "" { // else it says how the last attempt ended
		e.Message = hold.Words(h)
	}
	e, err := q.put(ctx, e)
	if err != nil {
		return err
	}
	if err := q.deliveries.Ack(ctx, d); err != nil {
		return err
	}
	// A process that released the hold since may not have seen this job parked.
	return q.unpark(ctx, e.ID)
}

// unpark brings a job back that was parked by a hold, unless that is in force.
func (q *Queue) unpark(ctx context.Context, id string) error {
	for {
		e, err := q.Read(ctx, id)
		if err != nil || e.State != jobs.Waiting || e.Hold != string(jobs.HoldBatch) {
			return err
		}
		h, err := q.Holds().Get(ctx, jobs.HoldKind(e.Hold), e.Batch)
		if err != nil || h != nil && !h.Cancel {
			return err
		}
		e.State, e.Hold = jobs.Pending, ""
		if e.Reason == "" {
			e.Message = ""
		}
		if e, err = q.put(ctx, e); isConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("bring job %s back: %w", id, err)
		}
		if q.conn.Bound {
			return nil // may not enqueue; a dispatcher finds the job stranded and does
		}
		return q.Enqueue(ctx, e.Record)
	}
}
