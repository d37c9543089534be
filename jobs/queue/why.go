package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/why"
)

// PresentEvery is how often a worker says that it lives. Observers take one that
// has been silent for three times as long for dead; its leases decide separately
// about the jobs that it held.
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
	// All at once, since each is a round trip or more.
	g, asking := errgroup.WithContext(ctx)
	g.Go(func() (err error) { f.Now, err = q.now(asking); return err })
	g.Go(func() (err error) { f.Lease, err = q.lane(asking, e.Class, e.Lane); return err })
	g.Go(func() (err error) { f.Queue, err = q.paused(asking, jobs.HoldQueue, e.Queue); return err })
	if e.Batch != "" {
		g.Go(func() (err error) { f.Batch, err = q.paused(asking, jobs.HoldBatch, e.Batch); return err })
	}
	if e.State == jobs.Pending {
		g.Go(func() (err error) { f.Workers, err = q.Workers(asking); return err })
	}
	err := g.Wait()
	switch {
	case err != nil:
		return f, err
	case e.Dependent():
		return f, q.open(ctx, e, &f)
	case e.State == jobs.Pending:
		return f, q.ahead(ctx, e, &f)
	}
	return f, nil
}

func (q *Queue) paused(ctx context.Context, kind jobs.HoldKind, name string) (*why.Pause, error) {
	h, err := q.hold(ctx, kind, name)
	if err != nil || h == nil || h.Cancel {
		return nil, err
	}
	return &why.Pause{By: h.By, At: h.At, Until: h.Until}, nil
}

// open finds the jobs that e waits for.
func (q *Queue) open(ctx context.Context, e entry, f *why.Facts) error {
	ids, failed, err := q.dependencies(ctx, e)
	if err != nil || failed != "" { // it ends as soon as a process looks
		return err
	}
	for _, id := range ids {
		on, err := q.read(ctx, id)
		if err != nil {
			return err
		}
		f.Open = append(f.Open, on.Record)
	}
	return nil
}

// pausedBy reports whether the queue or the batch of a job is paused.
func pausedBy(holds []jobs.Hold, rec jobs.Record) bool {
	return holding(holds, rec) || slices.ContainsFunc(holds, func(h jobs.Hold) bool { return h.Kind == jobs.HoldQueue && h.Name == rec.Queue })
}
