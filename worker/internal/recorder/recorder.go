// Package recorder appends an attempt's events to the session's log, in order, from one goroutine:
// to take an event never blocks, so that no lock is held while the broker is slow.
package recorder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// A Log is where a session's events go. It is an interface because a test
// must break it.
type Log interface {
	Append(ctx context.Context, events ...jobs.Event) error
}

// What one attempt may write. An agent that floods its output is slowed to
// the pace of the broker first; past maxOutput the rest is counted, not kept.
const (
	backlog   = 256
	batchSize = 64
	maxOutput = 64 << 20
	// minEvent is the least size for which an event counts. A session's log has room
	// for a million; many short lines must not push out its beginning.
	minEvent = 256
)

// Hooks let the worker's watchers see what is recorded. Each may be nil.
type Hooks struct {
	// Stored: one event was stored; took is the time for all events stored with it.
	Stored func(kind jobs.Kind, bytes int, took time.Duration)
	// Dropped: n events were not stored, because the agent has written as much as it may
	// (too_large) or because the log did not take them (publish_error). Of a batch that
	// fails, some may have been stored. What a lost lease drops belongs to nobody, and is not told.
	Dropped func(reason string, n int)
}

// A Recorder takes an attempt's events, in order, from several goroutines and
// appends them to the session from one. Taking an event never blocks, so it may
// happen under a lock; Pace blocks while the broker is slow, so that an agent
// cannot fill the worker's memory.
type Recorder struct {
	to    Log
	clean func(jobs.Event) jobs.Event
	hooks Hooks
	// failed is called once, when an event could not be appended: the attempt
	// must end, since its log would have a hole.
	failed func(error)

	done  chan struct{}
	err   error // of the first append that failed; read it after done
	abort context.CancelCauseFunc

	mu      sync.Mutex
	changed *sync.Cond   // the queue, or closed
	queue   []jobs.Event // events that are not being appended yet
	closed  bool
	bytes   int
	dropped int
}

// New returns a recorder that keeps what it takes until it is started. Clean removes what must not
// leave the worker. Failed is called once, when an event could not be appended: the
// attempt must end, since its log would have a hole.
func New(clean func(jobs.Event) jobs.Event, hooks Hooks, failed func(error)) *Recorder {
	r := &Recorder{clean: clean, hooks: hooks, failed: failed, done: make(chan struct{})}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// Start begins to append to a log. Appending outlives ctx, because how an attempt
// ended must be recorded, too; but not the loss of the lease.
func (r *Recorder) Start(ctx context.Context, to Log) {
	r.to = to
	appending, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	r.abort = abort
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), jobs.ErrFenced) {
			abort(jobs.ErrFenced)
		}
	})
	go r.run(appending)
}

// run appends until the recorder is closed or an append fails; then it keeps taking
// events, so that no caller blocks, and drops them.
func (r *Recorder) run(ctx context.Context) {
	defer close(r.done)
	for {
		batch := r.next()
		switch {
		case batch == nil:
			return
		case r.err != nil:
			r.lose(ctx, len(batch))
			continue
		}
		began := time.Now()
		if r.err = r.to.Append(ctx, batch...); r.err != nil {
			r.failed(r.err)
			r.lose(ctx, len(batch))
			continue
		}
		r.report(batch, time.Since(began))
	}
}

// lose tells of events that the log has not taken.
func (r *Recorder) lose(ctx context.Context, n int) {
	fenced := errors.Is(r.err, jobs.ErrFenced) || errors.Is(context.Cause(ctx), jobs.ErrFenced)
	if r.hooks.Dropped != nil && !fenced {
		r.hooks.Dropped("publish_error", n)
	}
}

// next waits for events to append, and takes as many as fit a batch; nil: the recorder
// is closed, and there are no more.
func (r *Recorder) next() []jobs.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 && !r.closed {
		r.changed.Wait()
	}
	if len(r.queue) == 0 {
		return nil
	}
	n := min(len(r.queue), batchSize)
	batch := slices.Clone(r.queue[:n])
	r.queue = slices.Delete(r.queue, 0, n)
	r.changed.Broadcast()
	return batch
}

// Pace waits while more events are queued than a slow broker may hold up. Call it
// without a lock, after events that the agent can make without end.
func (r *Recorder) Pace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > backlog {
		r.changed.Wait()
	}
}

// Full reports whether Pace would wait.
func (r *Recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.queue) > backlog
}

func (r *Recorder) report(batch []jobs.Event, took time.Duration) {
	if r.hooks.Stored == nil {
		return
	}
	for _, event := range batch {
		r.hooks.Stored(event.Kind, size(event), took)
	}
}

// Put records events of the pool itself. They are never dropped. Each has the time of now,
// however long the broker is away.
func (r *Recorder) Put(events ...event.Event) {
	clean := make([]jobs.Event, len(events))
	now := time.Now().UTC()
	for i, e := range events {
		clean[i] = r.clean(e.Event)
		clean[i].Time = now
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, clean...)
	r.changed.Broadcast()
}

// PutOutput records events that the agent's output became, until the attempt
// has written as much as it may.
func (r *Recorder) PutOutput(events ...event.Event) {
	for _, e := range events {
		if r.takes(size(e.Event)) {
			r.Put(e)
		}
	}
}

// Drop counts events that are not kept.
func (r *Recorder) Drop(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped += n
}

func (r *Recorder) takes(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes += max(n, minEvent); r.bytes <= maxOutput {
		return true
	}
	r.dropped++
	return false
}

// Close waits until everything is appended, or ctx ends. An error means that
// the session's log has not all of it, so the attempt must not be settled. One that
// was never started has no log to be complete.
func (r *Recorder) Close(ctx context.Context) error {
	if r.abort == nil {
		return nil
	}
	if n := r.lost(); n > 0 {
		r.Put(event.Make(event.Notice{Text: "output over the limit was dropped", Dropped: n, Limit: maxOutput}))
		if r.hooks.Dropped != nil {
			r.hooks.Dropped("too_large", n)
		}
	}
	r.mu.Lock()
	r.closed = true
	r.changed.Broadcast()
	r.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { r.abort(context.Cause(ctx)) })
	defer stop()
	defer r.abort(nil)
	<-r.done
	return r.err
}

func (r *Recorder) lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

func size(e jobs.Event) int {
	n := len(e.Data)
	if e.Raw != nil {
		n += len(e.Raw.JSON) + len(e.Raw.Text)
	}
	return n
}
