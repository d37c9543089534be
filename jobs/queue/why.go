package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/why"
)

// PresentEvery is how often a worker says that it lives. One that has not for
// three times as long is taken for dead by those who look; what it held is
// another matter, which its leases decide.
const PresentEvery = 5 * time.Second

// Present says that a worker lives, and with what. The broker forgets it unless
// it is said again.
func (q *Queue) Present(ctx context.Context, w why.Worker) error {
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	msg := message(q.presence(w.Name), body)
	msg.Header.Set("Nats-TTL", strconv.Itoa(int(3*PresentEvery/time.Second)))
	if err := q.conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("say that worker %s lives: %w", w.Name, err)
	}
	return nil
}

// Leave says that a worker has ended. A worker may write what is known of it,
// not purge; the mark goes by itself.
func (q *Queue) Leave(ctx context.Context, worker string) error {
	msg := message(q.presence(worker), nil)
	msg.Header.Set("KV-Operation", "DEL")
	msg.Header.Set("Nats-TTL", strconv.Itoa(int(3*PresentEvery/time.Second)))
	if err := q.conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("say that worker %s has ended: %w", worker, err)
	}
	return nil
}

// presence is where a worker says that it lives. Its name may have anything.
func (q *Queue) presence(worker string) string {
	return subject.Key(subject.Workers, jobs.HashKey(q.cfg.Tenant, worker))
}

// Workers returns the workers that are alive.
func (q *Queue) Workers(ctx context.Context) ([]why.Worker, error) {
	var list []why.Worker
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Workers), Subject: subject.Key(subject.Workers, "*")}) {
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		var w why.Worker
		if m.Gone() || json.Unmarshal(m.Data, &w) != nil {
			continue
		}
		w.Seen = m.Time
		list = append(list, w)
	}
	return list, nil
}

// Why says what keeps a job where it is.
func (q *Queue) Why(ctx context.Context, id string) (why.Standing, error) {
	e, err := q.find(ctx, id)
	if err != nil {
		return why.Standing{}, err
	}
	f, err := q.facts(ctx, e)
	if err != nil {
		return why.Standing{}, fmt.Errorf("why job %s is %s: %w", e.ID, e.State, err)
	}
	return why.Of(f), nil
}

func (q *Queue) facts(ctx context.Context, e entry) (why.Facts, error) {
	f := why.Facts{Record: e.Record, Written: e.at}
	if e.State == jobs.Finished {
		return f, nil
	}
	var err error
	if f.Now, err = q.now(ctx); err != nil {
		return f, err
	}
	if f.Lease, err = q.lane(ctx, e.Class, e.Lane); err != nil {
		return f, err
	}
	if f.Queue, err = q.paused(ctx, HoldQueue, e.Queue); err != nil {
		return f, err
	}
	if e.Batch != "" {
		if f.Batch, err = q.paused(ctx, HoldBatch, e.Batch); err != nil {
			return f, err
		}
	}
	if e.State != jobs.Pending {
		return f, nil
	}
	if f.Workers, err = q.Workers(ctx); err != nil {
		return f, err
	}
	return f, q.ahead(ctx, e, &f)
}

func (q *Queue) paused(ctx context.Context, kind HoldKind, name string) (*why.Pause, error) {
	h, err := q.hold(ctx, kind, name)
	if err != nil || h == nil || h.Cancel {
		return nil, err
	}
	return &why.Pause{By: h.By, At: h.At, Until: h.Until}, nil
}

// ahead finds the jobs that are or may be claimed before one that is pending,
// and whether that one is not in its queue at all.
func (q *Queue) ahead(ctx context.Context, me entry, f *why.Facts) error {
	entries, err := q.entries(ctx, Filter{})
	if err != nil {
		return err
	}
	holds, err := q.Holds(ctx)
	if err != nil {
		return err
	}
	ready := map[string]entry{}
	for _, e := range entries {
		lost := e.State == jobs.Executing && f.Now.Sub(e.at) >= f.Lease
		if e.State != jobs.Pending && !lost || pausedBy(holds, e.Record) {
			continue
		}
		ready[e.ID] = e
		both := func(w why.Worker) bool { return w.Serves(e.Record) && w.Serves(me.Record) }
		if e.Class != me.Class && e.Lane <= me.Lane && slices.ContainsFunc(f.Workers, both) {
			f.Rivals++
		}
	}
	f.Stranded = true
	for _, lane := range subject.Lanes {
		if err := q.aheadIn(ctx, lane, me, ready, f); err != nil || lane == me.Lane {
			return err
		}
	}
	return nil
}

// aheadIn is ahead in one lane, whose order is the broker's.
func (q *Queue) aheadIn(ctx context.Context, lane string, me entry, ready map[string]entry, f *why.Facts) error {
	if _, err := q.lane(ctx, me.Class, lane); err != nil {
		return err
	}
	before := true // those that come later in its own lane are not
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.QueueStream(me.Class, lane), Subject: q.names.QueueAll(me.Class, lane)}) {
		if err != nil {
			return err
		}
		id := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
		if id == me.ID {
			before, f.Stranded = false, false
			continue
		}
		// What its worker lost is delivered again before more is delivered.
		if e, ok := ready[id]; ok && (before || e.State == jobs.Executing) {
			f.Ahead++
		}
	}
	return nil
}

// pausedBy reports whether somebody has paused the queue or the batch of a job.
func pausedBy(holds []Hold, rec jobs.Record) bool {
	return holding(holds, rec) || slices.ContainsFunc(holds, func(h Hold) bool { return h.Kind == HoldQueue && h.Name == rec.Queue })
}
