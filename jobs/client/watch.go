package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/eventstream"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
	"github.com/penstock-run/penstock/jobs/pause"
)

// Watch returns the jobs that a request selects as they are now, and then each that
// changes, until ctx ends: also those that it selects no more. Where a job changes several
// times in quick succession, its newest record comes once. Caught, if not nil, is called
// each time that everything has come that is known now. Only a client over HTTP watches;
// on the bus package queue does, for operators.
func (c *Client) Watch(ctx context.Context, request operation.ListRequest, caught func()) iter.Seq2[jobs.Record, error] {
	return func(yield func(jobs.Record, error) bool) {
		r := &watcher{client: c, request: request, caught: caught, yield: yield}
		if err := changes(ctx, c, &r.last, nil, func(e eventstream.Event) (bool, error) { return r.take(ctx, e) }); err != nil {
			yield(jobs.Record{}, fmt.Errorf("watch jobs: %w", err))
		}
	}
}

// A Change is one of the stream of what changes in a pool, as GET /v1/stream has it.
type Change struct {
	Place string // where to go on behind it
	Kind  string
	Data  json.RawMessage
}

// Changes returns what changes in the pool behind a place, until ctx ends: behind "" from
// now on. A change of kind reset says that more may have changed than was told. Where the
// connection is lost it goes on behind the last change as soon as it can; lost, if not nil,
// is called each time that it cannot. Only a client over HTTP has this stream; on the bus
// package feed has it, for operators.
func (c *Client) Changes(ctx context.Context, after string, lost func(error)) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		err := changes(ctx, c, &after, lost, func(e eventstream.Event) (bool, error) {
			if e.ID != "" {
				after = e.ID
			}
			return !yield(Change{e.ID, e.Name, e.Data}, nil), nil
		})
		if err != nil {
			yield(Change{}, fmt.Errorf("follow the changes: %w", err))
		}
	}
}

// changes gives the stream of changes to take, behind the last one that it has, until that
// has enough or ctx ends.
func changes(ctx context.Context, c *Client, last *string, lost func(error), take func(eventstream.Event) (bool, error)) error {
	w, ok := c.transport.(*web)
	if !ok {
		return errors.New("the bus has no stream of changes for clients")
	}
	for ctx.Err() == nil {
		enough, err := w.stream(ctx, wanted{call: call{row: operation.List.Row}, route: route.Stream, last: *last}, take)
		switch {
		case enough || ctx.Err() != nil:
			return nil
		case err != nil && !away(err):
			return err
		case err != nil && lost != nil:
			lost(err)
		}
		pause.For(ctx, askAgainAfter)
	}
	return nil
}

// A watcher reads what changes in a pool.
type watcher struct {
	client  *Client
	request operation.ListRequest
	caught  func()
	yield   func(jobs.Record, error) bool

	last   string // id of the last change
	enough bool   // nothing more is wanted
}

// take takes a change, and reports whether nothing more is wanted.
func (w *watcher) take(ctx context.Context, e eventstream.Event) (bool, error) {
	var err error
	switch e.Name {
	case "reset": // how far the reader had come is not known to the server any more
		err = w.list(ctx)
	case "job":
		err = w.changed(ctx, e.Data)
	}
	if err == nil && e.ID != "" {
		w.last = e.ID
	}
	return w.enough, err
}

// list tells all that is known now.
func (w *watcher) list(ctx context.Context) error {
	for rec, err := range w.client.List(ctx, w.request) {
		if err != nil {
			return err
		}
		if w.enough = !w.yield(rec, nil); w.enough {
			return nil
		}
	}
	if w.caught != nil {
		w.caught()
	}
	return nil
}

// changed tells of one job, which may have been removed since.
func (w *watcher) changed(ctx context.Context, data []byte) error {
	var job struct{ ID, Queue, Batch string }
	if err := json.Unmarshal(data, &job); err != nil {
		return fmt.Errorf("read a change: %w", err)
	}
	if w.request.Queue != "" && job.Queue != w.request.Queue || w.request.Batch != "" && job.Batch != w.request.Batch {
		return nil
	}
	rec, err := w.client.Get(ctx, job.ID)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return nil
	case err != nil:
		return err
	case w.request.Since != nil && rec.Submitted.Before(*w.request.Since):
		return nil
	}
	w.enough = !w.yield(rec, nil)
	return nil
}
