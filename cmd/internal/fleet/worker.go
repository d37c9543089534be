package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/why"
)

// A script is what workers do, and for which pool.
type script struct {
	data         string // of the pool
	first        int    // the number of the first worker of this process
	work, slower time.Duration
}

// tellEvery is how often a process with workers reports.
const tellEvery = 50 * time.Millisecond

// A crew is the workers of one process.
type crew struct {
	options
	settled, running, failed atomic.Int64
}

// workAll runs all workers of this process until the input ends, and reports on out.
func workAll(ctx context.Context, o options, input io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process, if not before: a read cannot be given up
		_, _ = io.Copy(io.Discard, input)
		cancel(nil)
	}()
	c := &crew{options: o}
	var all sync.WaitGroup
	for n := range o.workers {
		all.Go(func() {
			if err := c.work(ctx, "worker-"+strconv.Itoa(o.script.first+n)); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		if _, err := fmt.Fprintln(out, c.settled.Load(), c.running.Load(), c.failed.Load()); err != nil {
			cancel(err)
		}
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// A worker is a scripted one.
type worker struct {
	*crew
	name    string
	queue   *queue.Queue
	log     *session.Log
	store   *artifact.Store
	busy    atomic.Int64
	changed chan struct{} // has a value while a change of busy is not reported
	started time.Time
}

// work is one worker, until ctx ends.
func (c *crew) work(ctx context.Context, name string) error {
	nc, err := measure.Connect(c.script.data)
	if err != nil {
		return err
	}
	defer nc.Close()
	w := &worker{crew: c, name: name, changed: make(chan struct{}, 1), started: time.Now().UTC()}
	if w.queue, err = queue.Open(ctx, nc, queue.Config{Lease: c.lease, Bind: true}); err != nil {
		return err
	}
	if w.log, err = session.Open(ctx, nc, session.Config{Bind: true}); err != nil {
		return err
	}
	if w.store, err = artifact.Open(ctx, nc, artifact.Config{Bind: true}); err != nil {
		return err
	}
	w.queue.EndWith(w.log.Finisher(w.store.Result))
	var all sync.WaitGroup
	all.Go(func() { w.present(ctx) })
	for range c.slots {
		all.Go(func() { w.slot(ctx) })
	}
	all.Wait()
	return nil
}

// present reports that the worker lives, as often as a worker does.
func (w *worker) present(ctx context.Context) {
	tick := time.NewTicker(presence.Every)
	defer tick.Stop()
	for ctx.Err() == nil {
		me := why.Worker{Name: w.name, Queues: []string{"default"}, Slots: w.slots, Busy: int(w.busy.Load()), Started: w.started, Clock: time.Now().UTC()}
		w.note(ctx, w.queue.Workers().Present(ctx, me))
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond): // as seldom as a worker
		}
		select {
		case <-ctx.Done():
		case <-w.changed:
		case <-tick.C:
			_, _, err := w.queue.Workers().Asked(ctx, w.name, w.started)
			w.note(ctx, err)
		}
	}
}

// note counts an error, and writes it into the log.
func (w *worker) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.failed.Add(1)
		slog.New(slog.NewTextHandler(os.Stderr, nil)).Error("a worker's step", "worker", w.name, "err", err)
	}
}

func (w *worker) occupy(n int64) {
	w.running.Add(n)
	w.busy.Add(n)
	select {
	case w.changed <- struct{}{}:
	default: // there is news already
	}
}

// slot takes one job after the other.
func (w *worker) slot(ctx context.Context) {
	for ctx.Err() == nil {
		claim, err := w.queue.Claim(ctx, w.name, []string{"default"})
		if err != nil {
			w.note(ctx, err)
			continue
		}
		w.occupy(1)
		w.note(ctx, w.attempt(ctx, claim))
		w.occupy(-1)
	}
}

// attempt is the way of a job through a worker, without an agent.
func (w *worker) attempt(ctx context.Context, claim *queue.Claim) error {
	keeping, stop := context.WithCancel(ctx)
	kept := make(chan error, 1)
	go func() { kept <- claim.Keep(keeping) }()
	err := w.act(ctx, claim)
	stop()
	if err := errors.Join(err, <-kept); err != nil {
		return err
	}
	w.settled.Add(1)
	return nil
}

func (w *worker) act(ctx context.Context, claim *queue.Claim) error {
	rec := claim.Record()
	src := session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Epoch: claim.Epoch(), Trace: rec.Span(rec.Attempt)}
	writer, err := w.log.Writer(ctx, src, event.New(event.JobClaimed{Worker: w.name, Epoch: src.Epoch}))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(w.script.work + time.Duration(w.settled.Load())*w.script.slower):
	}
	if err := writer.Append(ctx, event.New(event.OutputLine{Stream: "stdout", Text: "done"})); err != nil {
		return err
	}
	result := jobs.Result{
		ID: rec.Item, Job: rec.ID, Session: rec.Session, Outcome: jobs.Success, Attempts: rec.Attempt, Worker: w.name, Isolation: jobs.IsolationNone,
		Durations: jobs.Durations{Total: time.Since(rec.Submitted).Seconds()},
	}
	if err := w.store.PutResult(ctx, src.Epoch, result); err != nil {
		return err
	}
	_, err = claim.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, func(ctx context.Context, rec jobs.Record) error { return w.log.Finish(ctx, rec, result) })
	return err
}
