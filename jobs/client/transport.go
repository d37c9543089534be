package client

import (
	"context"
	"encoding/json"
	"io"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
)

// A transport is how a client reaches a pool: over the bus, or over HTTP.
type transport interface {
	// request brings a request to a dispatcher and returns the answer. An error that is
	// an [ErrNoDispatcher] says that no dispatcher can have taken it.
	request(ctx context.Context, c call, body json.RawMessage) (json.RawMessage, error)
	// follow returns the events of a job's session behind a sequence number, as
	// [Client.Follow] does, but for the cause of ctx.
	follow(ctx context.Context, c *Client, rec jobs.Record, after uint64) iter.Seq2[jobs.Event, error]
	// stored returns those that are stored now.
	stored(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error]
	// before returns the newest of those whose numbers are less than before.
	before(ctx context.Context, c *Client, id string, before uint64, most int) ([]jobs.Event, error)
	// artifact opens an artifact of a job by its whole id.
	artifact(ctx context.Context, id string, epoch uint64, name string) (io.ReadCloser, error)
	// patch opens the patch of a finished job.
	patch(ctx context.Context, c *Client, id string) (io.ReadCloser, error)
	// terminals returns what asks about the terminals of a job.
	terminals(c *Client, rec jobs.Record) *Terminals
	// close closes what the transport itself has opened.
	close()
}

// followRequests follows a session by requests alone.
func followRequests(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
		request := operation.EventsRequest{ID: id, After: after, For: jobs.Duration(operation.MaxWait)}
		for over := false; !over && ctx.Err() == nil; {
			page, err := Ask(ctx, c, operation.Events, request)
			if err != nil && away(err) {
				pause.For(ctx, askAgainAfter)
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

// storedByRequests returns the events of a session that are stored now, by requests alone.
func storedByRequests(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error] {
	return func(yield func(jobs.Event, error) bool) {
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
