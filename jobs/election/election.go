// Package election chooses the one process of a pool that leads, by a lease on the broker.
//
//	campaign ──▶ lead ── the lease is renewed ──▶ resign, or another process leads
//
// For a moment two may lead: one that was silent knows only by its own clock that its
// lease is over. What a leader does must be harmless when it is done twice.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Lease is how long the leader's lease holds. A process that ends, or
// whose connection does, is replaced sooner.
const Lease = 6 * time.Second

// An Election is one pool's, as a process takes part in it.
type Election struct {
	Conn  *wire.Conn
	Names subject.Names

	leads atomic.Bool // this process does
}

// A leader describes the process that leads.
type leader struct {
	Instance string    `json:"instance"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
}

// A sighting is a revision of the lease, and when this process first saw it.
type sighting struct {
	rev uint64
	at  time.Time
}

// Run calls do whenever this process becomes the leader, again and again until
// ctx ends. The context that do gets ends when another process may lead, and do
// must end with it.
func (e *Election) Run(ctx context.Context, do func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for people only
	}
	me := leader{Instance: jobs.NewID(), Host: host, PID: os.Getpid()}
	// This lets others tell a leader that is gone from one that is silent.
	sub, err := e.Conn.NC.Subscribe(e.Names.Leader(me.Instance), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	var last sighting
	for ctx.Err() == nil {
		if rev, err := e.campaign(ctx, me, &last); err == nil && rev > 0 {
			e.hold(ctx, me, rev, do)
		}
		if e.Conn.NC.IsClosed() {
			return fmt.Errorf("lead: %w: the connection is closed", jobs.ErrUnavailable)
		}
		select {
		case <-ctx.Done():
		case <-time.After(Lease / 6):
		}
	}
	return nil
}

// campaign tries once to become the leader, and returns the revision that says
// so; zero: another one leads. Last is the lease that was seen last.
func (e *Election) campaign(ctx context.Context, me leader, last *sighting) (uint64, error) {
	m, err := e.Conn.Last(ctx, subject.KVStream(subject.Leader), subject.LeaderKey)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return 0, err
	}
	if last.rev != m.Seq {
		*last = sighting{m.Seq, time.Now()}
	}
	// The broker ends a lease by its clock, which may have been set back.
	over := time.Since(last.at) > Lease
	var other leader
	if err == nil && !m.Gone() && !over && json.Unmarshal(m.Data, &other) == nil && other.Instance != me.Instance && e.present(ctx, other) {
		return 0, nil
	}
	me.Since = time.Now().UTC()
	w, err := me.leaseWrite(m.Seq)
	if err != nil {
		return 0, err
	}
	rev, err := e.Conn.Put(ctx, w)
	if errors.Is(err, wire.ErrConflict) {
		return 0, nil
	}
	return rev, err
}

// present reports whether a leader may still be there. If its process or its
// connection has ended, no subscriber answers; one that is only silent has until
// its lease is over.
func (e *Election) present(ctx context.Context, l leader) bool {
	if jobs.CheckToken("instance", l.Instance) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, Lease/12)
	defer cancel()
	_, err := e.Conn.NC.RequestWithContext(ctx, e.Names.Leader(l.Instance), nil)
	return !errors.Is(err, nats.ErrNoResponders)
}

// leaseWrite is the write of the leader's lease over the revision that it knows.
func (l leader) leaseWrite(over uint64) (wire.Write, error) {
	data, err := json.Marshal(l)
	return wire.Write{Stream: subject.KVStream(subject.Leader), Subject: subject.LeaderKey, Data: data, Expect: over, TTL: Lease}, err
}

// hold renews the lease and runs do for as long as the lease can be renewed.
func (e *Election) hold(ctx context.Context, me leader, rev uint64, do func(context.Context)) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	e.leads.Store(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer e.leads.Store(false)
		do(working)
	}()
	tick := time.NewTicker(Lease / 3)
	defer tick.Stop()
	good := time.Now()
	for {
		select {
		case <-done:
			e.resign(ctx, rev)
			return
		case <-tick.C:
		}
		sent := time.Now()
		w, err := me.leaseWrite(rev)
		if err == nil {
			// Measured by this process's own clock, as with leases.
			try, cancel := context.WithDeadline(working, good.Add(Lease*3/4))
			var next uint64
			if next, err = e.Conn.Put(try, w); err == nil {
				rev, good = next, sent
			}
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			e.leads.Store(false)
			end(fmt.Errorf("lead: %w", jobs.ErrFenced))
			<-done
			return
		}
	}
}

// resign lets the next one lead at once.
func (e *Election) resign(ctx context.Context, rev uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.Patience)
	defer cancel()
	// Best effort: without it the lease is over in a while.
	_, _ = e.Conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Leader), Subject: subject.LeaderKey, Expect: rev, TTL: Lease,
		Header: nats.Header{"KV-Operation": {"DEL"}},
	})
}

// Led reports whether there is a leader. The one that leads need not ask.
func (e *Election) Led(ctx context.Context) (bool, error) {
	if e.leads.Load() {
		return true, nil
	}
	m, err := e.Conn.Last(ctx, subject.KVStream(subject.Leader), subject.LeaderKey)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil && !m.Gone(), err
}
