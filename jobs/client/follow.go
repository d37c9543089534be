package client

import (
	"context"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/session"
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
		events := followRequests(ctx, c, rec.ID, after)
		if reads(c.cfg.Role) {
			events = c.log.Follow(ctx, rec.Session, after+1, session.FollowOptions{
				Job: rec.ID, Record: func(ctx context.Context) (jobs.Record, error) { return c.Get(ctx, rec.ID) },
			})
		}
		for event, err := range events {
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

// followRequests follows a session for a role that may not read the log.
func followRequests(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		request := operation.EventsRequest{ID: id, After: after, For: jobs.Duration(operation.MaxWait)}
		for over := false; !over && ctx.Err() == nil; {
			page, err := Ask(ctx, c, operation.Events, request)
			if err != nil && away(err) {
				pause(ctx)
				continue
			}
			if err != nil {
				yield(jobs.Event{}, err)
				return
			}
			for _, event := range page.Events {
				if request.After = event.Seq; !yield(event, nil) {
					return
				}
			}
			over = page.Over
		}
	}
}

// Events returns the events of a job's session that are stored now and whose sequence
// numbers are greater than after. A role that may read the log gets those of later jobs
// of the session, too.
func (c *Client) Events(ctx context.Context, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		if reads(c.cfg.Role) {
			rec, err := c.Get(ctx, id)
			if err != nil {
				yield(jobs.Event{}, err)
				return
			}
			c.log.Read(ctx, rec.Session, after+1)(yield)
			return
		}
		for {
			page, err := Ask(ctx, c, operation.Events, operation.EventsRequest{ID: id, After: after})
			if err != nil {
				yield(jobs.Event{}, err)
				return
			}
			for _, event := range page.Events {
				if after = event.Seq; !yield(event, nil) {
					return
				}
			}
			if len(page.Events) == 0 || page.Over {
				return
			}
		}
	}
}
