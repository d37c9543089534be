package client

import (
	"context"
	"iter"

	"github.com/penstock-run/penstock/jobs"
)

// Follow returns the events of a job's session whose sequence numbers are greater
// than after: first those that are stored, then each as it comes. It ends behind the
// job's last event, also where retention has removed that one from the log, and goes
// on through restarts of the pool. It ends with an error otherwise: the cause of ctx,
// when that ends first.
func (c *Client) Follow(ctx context.Context, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		rec, err := c.Get(ctx, id)
		if err != nil {
			yield(jobs.Event{}, err)
			return
		}
		for event, err := range c.transport.follow(ctx, c, rec, after) {
			if err != nil && ctx.Err() != nil {
				break
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
		if ctx.Err() != nil {
			yield(jobs.Event{}, context.Cause(ctx))
		}
	}
}

// Events returns the events of a job's session that are stored now and whose sequence
// numbers are greater than after. A role that may read the log gets those of later jobs
// of the session, too.
func (c *Client) Events(ctx context.Context, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return c.transport.stored(ctx, c, id, after)
}

// Before returns the newest events of a job's session whose numbers are less than before,
// at most so many, in their order; zero is behind the last one. It costs more where the
// client cannot read the log itself.
func (c *Client) Before(ctx context.Context, id string, before uint64, most int) ([]jobs.Event, error) {
	return c.transport.before(ctx, c, id, before, most)
}

// newest returns the last of events with numbers less than before.
func newest(events iter.Seq2[jobs.Event, error], before uint64, most int) ([]jobs.Event, error) {
	var last []jobs.Event
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if before > 0 && e.Seq >= before {
			break
		}
		if last = append(last, e); len(last) > most {
			last = last[1:]
		}
	}
	return last, nil
}
