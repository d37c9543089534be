package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/record"
)

// Park lets go of a job whose agent asks: it holds no slot until [Queue.Wake],
// or until that time. Like Settle it may be called again after an error, and
// returns [jobs.ErrFenced] when the attempt belonged to another worker already.
// It returns [jobs.ErrCancelled] when a cancel was asked for: settle it then.
func (c *Claim) Park(ctx context.Context, question string, until time.Time) (jobs.Record, error) {
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return c.rec, context.Cause(ctx)
	}
	defer func() { <-c.busy }()
	if err := c.commitParked(ctx, question, until); err != nil {
		return c.held.Record, fmt.Errorf("park: %w", err)
	}
	c.forgo(ctx)
	rec := c.held.Record
	if err := c.q.schedule(ctx, rec); err != nil {
		return rec, fmt.Errorf("schedule job %s: %w", rec.ID, err)
	}
	return rec, c.q.deliveries.Ack(ctx, c.d)
}

// commitParked is the write that decides.
func (c *Claim) commitParked(ctx context.Context, question string, until time.Time) error {
	for !c.done {
		if c.held.Cancel != nil {
			return fmt.Errorf("job %s: %w", c.rec.ID, jobs.ErrCancelled)
		}
		next := c.next()
		next.Record = next.Parked(question, until)
		next, err := c.q.put(ctx, next)
		if isConflict(err) {
			if err = c.reread(ctx); err == nil {
				continue
			}
		}
		if errors.Is(err, jobs.ErrFenced) {
			hook(c.q.cfg.Hooks.LeaseLost, c.rec)
		}
		if err != nil {
			return err
		}
		c.held, c.done = next, true
		close(c.ended)
	}
	return nil
}

// Wake makes a job pending again that is parked with a question or because a budget is spent, if
// it is parked as rec says: it may have gone on meanwhile, and ask something else.
func (q *Queue) Wake(ctx context.Context, rec jobs.Record) (jobs.Record, error) {
	for {
		e, err := q.Read(ctx, rec.ID)
		if err != nil {
			return jobs.Record{}, fmt.Errorf("wake: %w", err)
		}
		if e.Attempt != rec.Attempt {
			return e.Record, nil
		}
		if e.Asking() || jobs.OnBudget(e.Record) {
			e.Record = e.Woken()
			e, err = q.put(ctx, e)
			if isConflict(err) {
				continue
			}
			if err == nil {
				err = q.replace(ctx, e.Record)
			}
			if err != nil {
				return e.Record, fmt.Errorf("wake: %w", err)
			}
		}
		if e.State != jobs.Pending {
			return e.Record, nil
		}
		return e.Record, q.Enqueue(ctx, e.Record)
	}
}

// replace makes room in its lane for a message of a job that goes on. The worker of its last
// attempt may not have acknowledged the one before yet: as long as that is there, the broker
// takes no other, and once it is acknowledged the lane had none.
func (q *Queue) replace(ctx context.Context, rec jobs.Record) error {
	stream := subject.QueueStream(rec.Class, rec.Lane)
	if err := q.conn.Purge(ctx, stream, q.names.Queue(rec.Class, rec.Lane, rec.Tenant, rec.ID)); err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return fmt.Errorf("make room for job %s in its queue: %w", rec.ID, err)
	}
	return nil
}

// ripe moves a job on whose time to wait has come, and reports whether it had.
func (q *Queue) ripe(ctx context.Context, e record.Entry) (record.Entry, bool, error) {
	if e.State != jobs.Delayed && !e.Asking() {
		return e, true, nil
	}
	now, err := q.Now(ctx)
	if err != nil {
		return e, false, err
	}
	if e.NotBefore != nil && e.NotBefore.After(now.Add(time.Second)) {
		return e, false, nil
	}
	e.Record = e.Woken()
	e, err = q.put(ctx, e)
	return e, true, err
}
