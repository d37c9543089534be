package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// leadFor is how long the leader's lease holds. A process that ends, or
// whose connection does, is replaced sooner.
const leadFor = 6 * time.Second

// A leader describes the process that leads.
type leader struct {
	Instance string    `json:"instance"`
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
}

// Lead calls do whenever this process becomes the leader, again and again until
// ctx ends. The context that do gets ends when another process may lead, and do
// must end with it. While there is a leader, pending jobs wait in their records
// until it admits them; see [Queue.Admit]. For a moment two may lead, so what do
// does must be harmless when it is done twice.
func (q *Queue) Lead(ctx context.Context, do func(context.Context)) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // for people only
	}
	me := leader{Instance: jobs.NewID(), Host: host, PID: os.Getpid()}
	// This lets others tell a leader that is gone from one that is silent.
	sub, err := q.conn.NC.Subscribe(q.names.Leader(me.Instance), func(m *nats.Msg) { _ = m.Respond(nil) })
	if err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only on a closed connection
	var last firstSeen
	for ctx.Err() == nil {
		if rev, err := q.campaign(ctx, me, &last); err == nil && rev > 0 {
			q.holdLead(ctx, me, rev, do)
		}
		if q.conn.NC.IsClosed() {
			return fmt.Errorf("lead: %w: the connection is closed", jobs.ErrUnavailable)
		}
		pauseFor(ctx, leadFor/6)
	}
	return nil
}

// campaign tries once to become the leader, and returns the revision that says
// so; zero: another one leads. Last is the lease that was seen last.
func (q *Queue) campaign(ctx context.Context, me leader, last *firstSeen) (uint64, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Leader), subject.LeaderKey)
	if err != nil && !errors.Is(err, jobs.ErrNotFound) {
		return 0, err
	}
	if last.rev != m.Seq {
		*last = firstSeen{m.Seq, time.Now()}
	}
	// The broker ends a lease by its clock, which may have been set back.
	over := time.Since(last.at) > leadFor
	var other leader
	if err == nil && !m.Gone() && !over && json.Unmarshal(m.Data, &other) == nil && other.Instance != me.Instance && q.present(ctx, other) {
		return 0, nil
	}
	me.Since = time.Now().UTC()
	w, err := me.leaseWrite(m.Seq)
	if err != nil {
		return 0, err
	}
	rev, err := q.conn.Put(ctx, w)
	if isConflict(err) {
		return 0, nil
	}
	return rev, err
}

// present reports whether a leader may still be there. If its process or its
// connection has ended, no subscriber answers; one that is only silent has until
// its lease is over.
func (q *Queue) present(ctx context.Context, l leader) bool {
	if jobs.CheckToken("instance", l.Instance) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, leadFor/12)
	defer cancel()
	_, err := q.conn.NC.RequestWithContext(ctx, q.names.Leader(l.Instance), nil)
	return !errors.Is(err, nats.ErrNoResponders)
}

// leaseWrite is the write of the leader's lease over the revision that it knows.
func (l leader) leaseWrite(over uint64) (wire.Write, error) {
	data, err := json.Marshal(l)
	return wire.Write{Stream: subject.KVStream(subject.Leader), Subject: subject.LeaderKey, Data: data, Expect: over, TTL: leadFor}, err
}

// holdLead renews the lease and runs do for as long as the lease can be renewed.
func (q *Queue) holdLead(ctx context.Context, me leader, rev uint64, do func(context.Context)) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	done := make(chan struct{})
	go func() { defer close(done); do(working) }()
	tick := time.NewTicker(leadFor / 3)
	defer tick.Stop()
	good := time.Now()
	for {
		select {
		case <-done:
			q.resign(ctx, rev)
			return
		case <-tick.C:
		}
		sent := time.Now()
		w, err := me.leaseWrite(rev)
		if err == nil {
			// Measured by this process's own clock, as with leases.
			try, cancel := context.WithDeadline(working, good.Add(leadFor*3/4))
			var next uint64
			if next, err = q.conn.Put(try, w); err == nil {
				rev, good = next, sent
			}
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			end(fmt.Errorf("lead: %w", jobs.ErrFenced))
			<-done
			return
		}
	}
}

// resign lets the next one lead at once.
func (q *Queue) resign(ctx context.Context, rev uint64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wire.Patience)
	defer cancel()
	// Best effort: without it the lease is over in a while.
	_, _ = q.conn.Put(ctx, wire.Write{
		Stream: subject.KVStream(subject.Leader), Subject: subject.LeaderKey, Expect: rev, TTL: leadFor,
		Header: nats.Header{"KV-Operation": {"DEL"}},
	})
}

// led reports whether there is a leader.
func (q *Queue) led(ctx context.Context) (bool, error) {
	m, err := q.conn.Last(ctx, subject.KVStream(subject.Leader), subject.LeaderKey)
	if errors.Is(err, jobs.ErrNotFound) {
		return false, nil
	}
	return err == nil && !m.Gone(), err
}

// Admit sends a job's message, which makes the job claimable whether or not
// there is a leader. It may be repeated.
func (q *Queue) Admit(ctx context.Context, rec jobs.Record) error {
	if err := q.offer(ctx, rec); err != nil {
		return fmt.Errorf("admit job %s: %w", rec.ID, err)
	}
	return nil
}

// Admitted returns the ids of the jobs of a class's lane that have a message.
func (q *Queue) Admitted(ctx context.Context, class, lane string) ([]string, error) {
	subjects, err := q.conn.Subjects(ctx, subject.QueueStream(class, lane), ">")
	if err != nil {
		return nil, fmt.Errorf("look into queue %s: %w", class, err)
	}
	ids := make([]string, 0, len(subjects))
	for s := range subjects {
		if _, _, _, id, err := q.names.ParseQueue(s); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
