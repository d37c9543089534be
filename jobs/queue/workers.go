package queue

import (
	"context"
	"encoding/json"
	"errors"
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
	msg := message(q.Drains().presence(w.Name), body)
	msg.Header.Set("Nats-TTL", strconv.Itoa(int(3*PresentEvery/time.Second)))
	if err := q.conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("say that worker %s lives: %w", w.Name, err)
	}
	return nil
}

// Leave says that a worker has ended. A worker may write what is known of it,
// not purge; the mark goes by itself.
func (q *Queue) Leave(ctx context.Context, worker string) error {
	msg := message(q.Drains().presence(worker), nil)
	msg.Header.Set("KV-Operation", "DEL")
	msg.Header.Set("Nats-TTL", strconv.Itoa(int(3*PresentEvery/time.Second)))
	if err := q.conn.Publish(ctx, msg); err != nil {
		return fmt.Errorf("say that worker %s has ended: %w", worker, err)
	}
	return nil
}

// Workers returns the workers that are alive, by name.
func (q *Queue) Workers(ctx context.Context) ([]why.Worker, error) {
	var list []why.Worker
	requests := map[string]why.DrainRequest{} // by where the worker says that it lives
	for m, err := range q.conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Workers), Subject: subject.Key(subject.Workers, ">")}) {
		if err != nil {
			return nil, fmt.Errorf("list workers: %w", err)
		}
		if key, ok := strings.CutSuffix(m.Subject, drainSuffix); ok {
			if r, ok := decodeDrain(m); ok {
				requests[key] = r
			}
		} else if w, ok := decodeWorker(m); ok {
			list = append(list, w)
		}
	}
	for i, w := range list {
		list[i] = requests[q.Drains().presence(w.Name)].On(w)
	}
	slices.SortFunc(list, func(a, b why.Worker) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func decodeWorker(m wire.Message) (w why.Worker, ok bool) {
	if m.Gone() || json.Unmarshal(m.Data, &w) != nil {
		return w, false
	}
	w.Seen = m.Time
	return w, true
}

// drainRequestKept is how long a request is kept. A worker that is alive reads it within
// a heartbeat, and then knows it as long as it lives.
const drainRequestKept = 7 * day

func decodeDrain(m wire.Message) (r why.DrainRequest, ok bool) {
	ok = !m.Gone() && json.Unmarshal(m.Data, &r) == nil
	return r, ok
}

// Drains are requests to workers to claim nothing more.
//
//	Ask ──▶ request, in the bucket of workers ──▶ Asked, at each heartbeat ──▶ Present
//
// The worker reads the request, so none is lost with a message, a dispatcher or a
// connection: what a worker says of itself shows when it has read it.
type Drains struct{ q *Queue }

// Drains returns the requests to workers to claim nothing more.
func (q *Queue) Drains() Drains { return Drains{q} }

// key stands for a worker, whose name may have anything, in subjects.
func (d Drains) key(worker string) string { return jobs.HashKey(d.q.cfg.Tenant, worker) }

// presence is where a worker says that it lives; with drainSuffix it is where the last
// request to it is.
func (d Drains) presence(worker string) string { return subject.Key(subject.Workers, d.key(worker)) }

const drainSuffix = ".drain"

// Ask tells a worker that is alive to claim nothing more, or to claim again. It returns
// the worker as it is then, which may not have read the request. A second request for
// the same changes nothing.
func (d Drains) Ask(ctx context.Context, name, by string, drain bool) (why.Worker, error) {
	for {
		w, last, err := d.worker(ctx, name)
		if err != nil {
			return w, err
		}
		now := w.Drain != nil
		if last.request.Started.Equal(w.Started) {
			now = last.request.Drain
		}
		switch {
		case w.Drain != nil && w.Drain.Ends && !drain:
			return w, &jobs.CodedError{Code: jobs.CodeFinished, Message: fmt.Sprintf("worker %s shuts down, which cannot be undone: start it again", name)}
		case now == drain || w.Drain != nil && w.Drain.Ends:
			return w, nil
		}
		request := why.DrainRequest{Started: w.Started, Drain: drain, By: by, At: time.Now().UTC()}
		if err := d.put(ctx, name, request, last.seq); isConflict(err) {
			continue // another request has come first
		} else if err != nil {
			return w, fmt.Errorf("ask worker %s: %w", name, err)
		}
		return request.On(w), nil
	}
}

// put writes a request over the one with a sequence number, and notifies the worker.
func (d Drains) put(ctx context.Context, name string, r why.DrainRequest, over uint64) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err = d.q.conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Workers), Subject: d.presence(name) + drainSuffix, Data: body, Expect: over, TTL: drainRequestKept,
	}); err != nil {
		return err
	}
	// If this is lost, the worker reads the request at its next heartbeat.
	_ = d.q.conn.NC.Publish(d.q.names.Drain(d.key(name)), nil)
	return nil
}

// lastDrain is the request to a worker that is stored.
type lastDrain struct {
	request why.DrainRequest
	seq     uint64
}

// Worker returns a worker that is alive.
func (d Drains) Worker(ctx context.Context, name string) (why.Worker, error) {
	w, _, err := d.worker(ctx, name)
	return w, err
}

// worker returns a worker that is alive, and the last request to one of its name.
func (d Drains) worker(ctx context.Context, name string) (why.Worker, lastDrain, error) {
	m, err := d.q.conn.Last(ctx, subject.KVStream(subject.Workers), d.presence(name))
	w, ok := decodeWorker(m)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && !ok {
		return w, lastDrain{}, fmt.Errorf("worker %q: %w: no worker of that name is alive", name, jobs.ErrNotFound)
	}
	if err != nil {
		return w, lastDrain{}, fmt.Errorf("worker %q: %w", name, err)
	}
	last, err := d.last(ctx, name)
	return last.request.On(w), last, err
}

// last reads the last request to a worker of a name; the zero value is none.
func (d Drains) last(ctx context.Context, name string) (lastDrain, error) {
	m, err := d.q.conn.Last(ctx, subject.KVStream(subject.Workers), d.presence(name)+drainSuffix)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return lastDrain{}, nil
	case err != nil:
		return lastDrain{}, fmt.Errorf("read what was asked of worker %q: %w", name, err)
	}
	r, _ := decodeDrain(m) // what cannot be read is for no process
	return lastDrain{r, m.Seq}, nil
}

// Asked returns what was asked last of the process of a worker that began at a time, and
// whether anything was. Without a drain it was asked to claim again.
func (d Drains) Asked(ctx context.Context, name string, started time.Time) (drain *why.Drain, asked bool, err error) {
	last, err := d.last(ctx, name)
	r := last.request
	if err != nil || !r.Started.Equal(started) {
		return nil, false, err
	}
	if r.Drain {
		drain = &why.Drain{By: r.By, At: r.At}
	}
	return drain, true, nil
}

// Notify returns a channel that has a value after something may have been asked of a
// worker.
func (d Drains) Notify(name string) (asked <-chan struct{}, stop func(), err error) {
	return d.q.conn.Notify(d.q.names.Drain(d.key(name)))
}
