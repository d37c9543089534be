package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
)

// holdWords says for people what is held.
func holdWords(h jobs.Hold) string { return string(h.Kind) + " " + h.Name + " is paused" }

// forever is until when a queue is paused if the request names no time.
var forever = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// Hold begins a hold, or replaces the one that is there.
func (q *Queue) Hold(ctx context.Context, h jobs.Hold) error {
	h.At = time.Now().UTC()
	if err := errors.Join(jobs.CheckToken(string(h.Kind), h.Name), oneKind(h.Kind)); err != nil {
		return err
	}
	// Written first: a process that makes a lane meanwhile looks here afterwards.
	if err := q.putHold(ctx, h, false); err != nil {
		return fmt.Errorf("hold %s %s: %w", h.Kind, h.Name, err)
	}
	if h.Kind == jobs.HoldQueue {
		return q.pause(ctx, h.Name, holdEnd(h))
	}
	return nil
}

// releaseAtOnce is how many jobs that were parked are brought back at a time.
const releaseAtOnce = 16

// Release ends a hold and brings back what it has parked, which list finds: [Queue.List], or
// what needs less for that. There need be none.
func (q *Queue) Release(ctx context.Context, kind jobs.HoldKind, name string, list func(context.Context, record.Filter) ([]jobs.Record, error)) error {
	if err := errors.Join(jobs.CheckToken(string(kind), name), oneKind(kind)); err != nil {
		return err
	}
	if err := q.putHold(ctx, jobs.Hold{Kind: kind, Name: name}, true); err != nil {
		return fmt.Errorf("release %s %s: %w", kind, name, err)
	}
	if kind == jobs.HoldQueue {
		return q.pause(ctx, name, time.Time{})
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

func oneKind(kind jobs.HoldKind) error {
	if kind == jobs.HoldQueue || kind == jobs.HoldBatch {
		return nil
	}
	return fmt.Errorf("%q cannot be held; a queue or a batch can", kind)
}

func holdKey(h jobs.Hold) string {
	return subject.Key(subject.Settings, "hold."+string(h.Kind)+"."+h.Name)
}

// holdEnd is until when the broker pauses a held queue.
func holdEnd(h jobs.Hold) time.Time {
	if h.Until != nil {
		return *h.Until
	}
	return forever
}

// putHold writes or removes a hold, even over another one.
func (q *Queue) putHold(ctx context.Context, h jobs.Hold, gone bool) error {
	if gone {
		return q.conn.Purge(ctx, subject.KVStream(subject.Settings), holdKey(h))
	}
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return q.conn.Publish(ctx, message(holdKey(h), body))
}

// hold returns the hold on a queue or a batch; nil if none is in force.
func (q *Queue) hold(ctx context.Context, kind jobs.HoldKind, name string) (*jobs.Hold, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Settings), holdKey(jobs.Hold{Kind: kind, Name: name}))
	if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Gone() {
		return nil, nil
	}
	var h jobs.Hold
	if err == nil {
		err = json.Unmarshal(m.Data, &h)
	}
	if err != nil {
		return nil, fmt.Errorf("hold on %s %s: %w", kind, name, err)
	}
	if h.Over(time.Now()) {
		return nil, nil
	}
	return &h, nil
}

// Holds returns the holds that are in force.
func (q *Queue) Holds(ctx context.Context) ([]jobs.Hold, error) {
	last := map[string]jobs.Hold{} // the bucket keeps a history
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Settings), Subject: subject.Key(subject.Settings, "hold.*.*")}) {
		if err != nil {
			return nil, fmt.Errorf("list holds: %w", err)
		}
		var h jobs.Hold
		if json.Unmarshal(m.Data, &h) == nil && !m.Gone() && strings.HasSuffix(m.Subject, holdKey(h)) {
			last[m.Subject] = h
		}
	}
	var list []jobs.Hold
	for _, h := range last {
		if !h.Over(time.Now()) {
			list = append(list, h)
		}
	}
	return list, nil
}

// pause makes the broker deliver nothing of a queue until a time; one that has
// passed ends that.
func (q *Queue) pause(ctx context.Context, queue string, until time.Time) error {
	classes, err := q.classesOf(ctx, queue)
	if err != nil {
		return err
	}
	for _, lane := range subject.Lanes {
		for _, class := range classes {
			if _, err := q.lane(ctx, class, lane); err != nil {
				return err
			}
			if _, err := q.conn.JS.PauseConsumer(ctx, subject.QueueStream(class, lane), subject.Consumer, until); err != nil {
				return fmt.Errorf("pause queue %s: %w", queue, err)
			}
		}
		if until.Before(time.Now()) { // waiting claimers have heard of nothing new
			if err := q.conn.NC.Publish(q.names.WakeAgain(queue, lane), nil); err != nil {
				return fmt.Errorf("resume queue %s: %w", queue, err)
			}
		}
	}
	return nil
}

// held keeps a job that is about to be claimed from beginning where its batch is
// held, and reports whether it did.
func (q *Queue) held(ctx context.Context, d delivery, e record.Entry) (bool, error) {
	if e.Batch == "" {
		return false, nil
	}
	h, err := q.hold(ctx, jobs.HoldBatch, e.Batch)
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
func (q *Queue) park(ctx context.Context, d delivery, e record.Entry, h jobs.Hold) error {
	e.State, e.Worker, e.Beat, e.Hold = jobs.Waiting, "", 0, string(h.Kind)
	if e.Reason == "" { // else it says how the last attempt ended
		e.Message = holdWords(h)
	}
	e, err := q.put(ctx, e)
	if err != nil {
		return err
	}
	if err := q.ack(ctx, d); err != nil {
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
		h, err := q.hold(ctx, jobs.HoldKind(e.Hold), e.Batch)
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
