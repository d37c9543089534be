// Package presence keeps which workers of a pool are alive, what each says of itself, and
// the requests to workers to claim nothing more.
//
//	Present, again and again ──▶ bucket of workers ──▶ List, for observers
//	Drain ──▶ request, in the same bucket ──▶ Asked, at each heartbeat
//
// A worker reads a request to it from the bucket, so none is lost with a message, a
// dispatcher or a connection: what a worker says of itself shows when it has read it.
package presence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/why"
)

// Every is how often a worker says that it lives. Observers take one that
// has been silent for three times as long for dead; its leases decide separately
// about the jobs that it held.
const Every = 5 * time.Second

// Workers are those of a pool.
type Workers struct {
	Conn   *wire.Conn
	Names  subject.Names
	Tenant string
}

// Present says that a worker lives, and with what. The broker forgets it unless
// it is said again.
func (p Workers) Present(ctx context.Context, w why.Worker) error {
	body, err := json.Marshal(w)
	if err != nil {
		return err
	}
	msg := nats.NewMsg(p.presence(w.Name))
	msg.Data = body
	if err := p.Keep(ctx, msg, 3*Every); err != nil {
		return fmt.Errorf("say that worker %s lives: %w", w.Name, err)
	}
	return nil
}

// Leave says that a worker has ended. A worker may write what is known of it,
// not purge; the mark goes by itself.
func (p Workers) Leave(ctx context.Context, worker string) error {
	msg := nats.NewMsg(p.presence(worker))
	msg.Header.Set("KV-Operation", "DEL")
	if err := p.Keep(ctx, msg, 3*Every); err != nil {
		return fmt.Errorf("say that worker %s has ended: %w", worker, err)
	}
	return nil
}

// Keep stores a message in the bucket of the workers, where the broker forgets it after a while.
func (p Workers) Keep(ctx context.Context, msg *nats.Msg, after time.Duration) error {
	msg.Header.Set("Nats-TTL", strconv.Itoa(int(after/time.Second)))
	return p.Conn.Publish(ctx, msg)
}

// List returns the workers that are alive, by name.
func (p Workers) List(ctx context.Context) ([]why.Worker, error) {
	var list []why.Worker
	requests := map[string]why.DrainRequest{} // by where the worker says that it lives
	for _, keys := range []string{"*", "*" + drainSuffix} {
		for m, err := range p.Conn.Scan(ctx, wire.Range{Stream: subject.KVStream(subject.Workers), Subject: subject.Key(subject.Workers, keys)}) {
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
	}
	for i, w := range list {
		list[i] = requests[p.presence(w.Name)].On(w)
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
const drainRequestKept = 7 * 24 * time.Hour

func decodeDrain(m wire.Message) (r why.DrainRequest, ok bool) {
	ok = !m.Gone() && json.Unmarshal(m.Data, &r) == nil
	return r, ok
}

// key stands for a worker, whose name may have anything, in subjects.
func (p Workers) key(worker string) string { return jobs.HashKey(p.Tenant, worker) }

// presence is where a worker says that it lives; with drainSuffix it is where the last
// request to it is.
func (p Workers) presence(worker string) string { return subject.Key(subject.Workers, p.key(worker)) }

const drainSuffix = ".drain"

// Drain tells a worker that is alive to claim nothing more, or to claim again. It returns
// the worker as it is then, which may not have read the request. A second request for
// the same changes nothing.
func (p Workers) Drain(ctx context.Context, name, by string, drain bool) (why.Worker, error) {
	for {
		w, last, err := p.worker(ctx, name)
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
		if err := p.put(ctx, name, request, last.seq); errors.Is(err, wire.ErrConflict) {
			continue // another request has come first
		} else if err != nil {
			return w, fmt.Errorf("ask worker %s: %w", name, err)
		}
		return request.On(w), nil
	}
}

// put writes a request over the one with a sequence number, and notifies the worker.
func (p Workers) put(ctx context.Context, name string, r why.DrainRequest, over uint64) error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err = p.Conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Workers), Subject: p.presence(name) + drainSuffix, Data: body, Expect: over, TTL: drainRequestKept,
	}); err != nil {
		return err
	}
	// If this is lost, the worker reads the request at its next heartbeat.
	_ = p.Conn.NC.Publish(p.Names.Drain(p.key(name)), nil)
	return nil
}

// lastDrain is the request to a worker that is stored.
type lastDrain struct {
	request why.DrainRequest
	seq     uint64
}

// Get returns a worker that is alive.
func (p Workers) Get(ctx context.Context, name string) (why.Worker, error) {
	w, _, err := p.worker(ctx, name)
	return w, err
}

// worker returns a worker that is alive, and the last request to one of its name.
func (p Workers) worker(ctx context.Context, name string) (why.Worker, lastDrain, error) {
	m, err := p.Conn.Last(ctx, subject.KVStream(subject.Workers), p.presence(name))
	w, ok := decodeWorker(m)
	if errors.Is(err, jobs.ErrNotFound) || err == nil && !ok {
		return w, lastDrain{}, fmt.Errorf("worker %q: %w: no worker of that name is alive", name, jobs.ErrNotFound)
	}
	if err != nil {
		return w, lastDrain{}, fmt.Errorf("worker %q: %w", name, err)
	}
	last, err := p.last(ctx, name)
	return last.request.On(w), last, err
}

// last reads the last request to a worker of a name; the zero value is none.
func (p Workers) last(ctx context.Context, name string) (lastDrain, error) {
	m, err := p.Conn.Last(ctx, subject.KVStream(subject.Workers), p.presence(name)+drainSuffix)
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
func (p Workers) Asked(ctx context.Context, name string, started time.Time) (drain *why.Drain, asked bool, err error) {
	last, err := p.last(ctx, name)
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
func (p Workers) Notify(name string) (asked <-chan struct{}, stop func(), err error) {
	return p.Conn.Notify(p.Names.Drain(p.key(name)))
}
