package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/timetable"
)

// Stranded returns those of the named jobs that will not move on unless they
// are enqueued again: the process that should have done it died between its
// two writes, or a worker that had no right to acknowledged a message. No ids
// mean all jobs, also those that the leader keeps back. Jobs that a clock that
// was set would hold back for long are moved on first.
func (q *Queue) Stranded(ctx context.Context, ids ...string) ([]jobs.Record, error) {
	entries, err := q.some(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for stranded jobs: %w", err)
	}
	now, err := q.Now(ctx)
	if err != nil {
		return nil, err
	}
	holds, err := q.Holds().List(ctx)
	if err != nil {
		return nil, err
	}
	lanes := map[string]content{} // by stream
	var stranded []jobs.Record
	moved := map[string]bool{}
	for _, e := range q.clock.Overlooked(entries, q.cfg.Lease) {
		moved[e.ID] = true
		rec, err := q.moveOn(ctx, e)
		if isConflict(err) {
			continue // another process is at work on it
		}
		if err != nil {
			return nil, fmt.Errorf("move job %s on: %w", e.ID, err)
		}
		stranded = append(stranded, rec)
	}
	for _, e := range entries {
		if moved[e.ID] {
			continue
		}
		if e.State == jobs.Waiting && e.Hold == string(jobs.HoldBatch) && !hold.Parks(holds, e.Record) {
			stranded = append(stranded, e.Record)
			continue
		}
		if !q.overdue(e, now) {
			continue
		}
		stream := subject.QueueStream(e.Class, e.Lane)
		if _, known := lanes[stream]; !known {
			if lanes[stream], err = q.content(ctx, stream); err != nil {
				return nil, fmt.Errorf("look into queue %s: %w", e.Class, err)
			}
		}
		has, err := q.offered(ctx, stream, lanes[stream], e)
		if err != nil {
			return nil, fmt.Errorf("look into queue %s: %w", e.Class, err)
		}
		if !has || e.State == jobs.Delayed || e.State == jobs.Waiting {
			stranded = append(stranded, e.Record)
		}
	}
	return stranded, nil
}

// moveOn moves on a job that was overlooked. It removes a silent worker's message:
// the broker keeps it for that worker, and would offer it again when its clock,
// which was set back, has come to where it was. The caller must enqueue the job
// again.
func (q *Queue) moveOn(ctx context.Context, e record.Entry) (jobs.Record, error) {
	if e.State == jobs.Delayed {
		e.State, e.NotBefore = jobs.Pending, nil
		e, err := q.put(ctx, e)
		return e.Record, err
	}
	e, end := workerLost(e)
	e.Record, _ = e.After(end, time.Now())
	e, err := q.put(ctx, e)
	if err != nil {
		return jobs.Record{}, err
	}
	if e.State == jobs.Finished {
		hook(q.cfg.Hooks.Settled, e.Record)
		if err := q.conclude(ctx, e.Record); err != nil {
			return e.Record, err
		}
	}
	return e.Record, q.conn.Purge(ctx, subject.QueueStream(e.Class, e.Lane), q.names.Queue(e.Class, e.Lane, e.Tenant, e.ID))
}

// content is what a lane has, and what its consumer knows of that.
type content struct {
	subjects map[string]uint64
	handed   uint64 // the sequence up to which messages were handed out
	forgets  bool   // there are more than the consumer will hand out and waits for
}

func (q *Queue) content(ctx context.Context, stream string) (c content, err error) {
	if c.subjects, err = q.conn.Subjects(ctx, stream, ">"); err != nil || len(c.subjects) == 0 {
		return c, err
	}
	var info struct {
		Delivered struct {
			Stream uint64 `json:"stream_seq"`
		} `json:"delivered"`
		Waiting int `json:"num_pending"`
		Unacked int `json:"num_ack_pending"`
	}
	err = q.conn.Ask(ctx, "CONSUMER.INFO."+stream+"."+subject.Consumer, nil, &info)
	c.handed, c.forgets = info.Delivered.Stream, len(c.subjects) > info.Waiting+info.Unacked
	return c, err
}

// offered reports whether a job has a message that the broker will hand out, or
// has handed out. After a full disk a consumer may be ahead of its stream, and
// take a new message for one that is done with: that one is removed. Should a
// worker have it after all, nothing is lost, because the record decides who claims.
func (q *Queue) offered(ctx context.Context, stream string, lane content, e record.Entry) (bool, error) {
	to := q.names.Queue(e.Class, e.Lane, e.Tenant, e.ID)
	if _, has := lane.subjects[to]; !has {
		return false, nil
	}
	if e.State != jobs.Pending || !lane.forgets {
		return true, nil
	}
	m, err := q.conn.Last(ctx, stream, to)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	if err != nil || m.Seq > lane.handed {
		return true, err
	}
	return false, q.conn.Purge(ctx, stream, to)
}

// some returns the entries of jobs, or of all if none is named.
func (q *Queue) some(ctx context.Context, ids []string) ([]record.Entry, error) {
	if len(ids) == 0 {
		return q.Entries(ctx, record.Filter{})
	}
	var list []record.Entry
	for _, id := range ids {
		e, err := q.Read(ctx, id)
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			list = append(list, e)
		}
	}
	return list, nil
}

// Conclude does what follows the end of each job that has ended since a time,
// as far as it was not done: it is for a pool that has lost its queues, where no
// worker is offered a job whose worker died right after settling it.
func (q *Queue) Conclude(ctx context.Context, since time.Time) error {
	entries, err := q.Entries(ctx, record.Filter{State: jobs.Finished})
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.At.Before(since) {
			continue
		}
		if err := q.conclude(ctx, e.Record); err != nil {
			return err
		}
	}
	return nil
}

// overdue reports whether a job should have moved on by itself.
func (q *Queue) overdue(e record.Entry, now time.Time) bool {
	// This is how long the writer of the record has for the second write, and
	// a worker for its next heartbeat.
	patience := q.cfg.Lease * 3 / 2
	if now.Sub(e.At) < patience {
		return false
	}
	switch e.State {
	case jobs.Pending, jobs.Executing:
		return true
	case jobs.Delayed, jobs.Waiting:
		return (e.State == jobs.Delayed || e.Asking()) && (e.NotBefore == nil || now.Sub(*e.NotBefore) > patience)
	}
	return false
}

// RunDue moves delayed jobs to their queue when their time has come, and lets
// fire work on the schedules that come due, until ctx ends. Several processes
// may do so at once. Without fire, firings are left to others.
func (q *Queue) RunDue(ctx context.Context, fire timetable.Fire) error {
	return q.deliveries.Consume(ctx, subject.Schedules, subject.Due, func(ctx context.Context, msg *nats.Msg) error {
		name, ok := q.names.ParseFire(msg.Subject)
		switch {
		case !ok:
			return q.due(ctx, msg)
		case fire == nil:
			return errors.New("schedules are for a dispatcher")
		}
		if err := q.Timetable().Fired(ctx, name, fire); err != nil {
			return err
		}
		return q.deliveries.Ack(ctx, delivery.Of(msg))
	})
}

func (q *Queue) due(ctx context.Context, msg *nats.Msg) error {
	class, lane, _, id, err := q.names.ParseDue(msg.Subject)
	d := delivery.Delivery{Class: class, Lane: lane, Subject: msg.Subject, Reply: msg.Reply}
	if err != nil {
		q.refuse(ctx, d, err)
		return nil
	}
	e, err := q.Read(ctx, id)
	if errors.Is(err, jobs.ErrNotFound) {
		return q.deliveries.Ack(ctx, d)
	}
	if err != nil {
		return err
	}
	e, ripe, err := q.ripe(ctx, e)
	switch {
	case err != nil:
		return err // a conflict is delivered again, too
	case !ripe: // an old schedule that a newer one has replaced too late
		if err := q.schedule(ctx, e.Record); err != nil {
			return err
		}
		return q.deliveries.Ack(ctx, d)
	}
	return q.deliver(ctx, e.Record, d)
}

// deliver enqueues a job that came due and removes the message that said so.
func (q *Queue) deliver(ctx context.Context, rec jobs.Record, d delivery.Delivery) error {
	switch rec.State {
	case jobs.Pending:
		if err := q.Enqueue(ctx, rec); err != nil {
			return err
		}
	case jobs.Finished:
		if err := q.conclude(ctx, rec); err != nil {
			return err
		}
	}
	return q.deliveries.Ack(ctx, d)
}

// relearn writes a record, unless another one was written meanwhile, and does
// what follows.
func (q *Queue) relearn(ctx context.Context, e record.Entry) (bool, error) {
	e, err := q.put(ctx, e)
	if isConflict(err) {
		return false, nil
	}
	if err == nil && e.State == jobs.Finished {
		if err = q.withdraw(ctx, e.Record); wire.NoStream(err) {
			err = nil
		}
		if err == nil {
			err = q.conclude(ctx, e.Record)
		}
	}
	return err == nil, err
}
