package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/operation/route"
)

// Watch returns the jobs that a request selects as they are now, and then each that
// changes, until ctx ends: also those that it selects no more. Where a job changes several
// times in quick succession, its newest record comes once. Caught, if not nil, is called
// each time that everything has come that is known now. Only a client over HTTP watches;
// on the bus package queue does, for operators.
func (c *Client) Watch(ctx context.Context, request operation.ListRequest, caught func()) iter.Seq2[jobs.Record, error] {
	return func(yield func(jobs.Record, error) bool) {
		w, ok := c.transport.(*web)
		if !ok {
			yield(jobs.Record{}, errors.New("the bus has no stream of changes for clients"))
			return
		}
		r := &watcher{client: c, request: request, caught: caught, yield: yield}
		for ctx.Err() == nil && !r.enough {
			_, err := w.stream(ctx, wanted{call: call{row: operation.List.Row}, route: route.Stream, last: r.last}, func(e streamed) (bool, error) { return r.take(ctx, e) })
			if err != nil && !away(err) && ctx.Err() == nil {
				yield(jobs.Record{}, fmt.Errorf("watch jobs: %w", err))
				return
			}
			if !r.enough {
				pause(ctx)
			}
		}
	}
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
func (w *watcher) take(ctx context.Context, e streamed) (bool, error) {
	var err error
	switch e.name {
	case "reset": // how far the reader had come is not known to the server any more
		err = w.list(ctx)
	case "job":
		err = w.changed(ctx, e.data)
	}
	if err == nil && e.id != "" {
		w.last = e.id
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
