// Package queue is the work queue, where jobs are submitted, claimed, kept and
// settled.
//
//	Accept ─▶ record ─ Enqueue ─▶ message ─ Claim ─▶ lease ─ Settle ─▶ record, then acknowledgement
//	             ▲                   ▲                 │ Keep
//	             └─ RunDue ◀─ schedule ◀───────────────┴─ a back-off
//
// A job is a record in a bucket and, while a worker should start it or runs
// it, a message in the stream of its lane. The record is the truth; the
// message only wakes a worker and times the lease. The broker takes an
// acknowledgement from any client, also from a worker that lost its job long
// ago, so these rules carry the guarantees:
//
//   - Nothing is said about a message unless the last compare-and-set on the
//     record succeeded in this step.
//   - A heartbeat is a compare-and-set first, then a message to the broker.
//   - The compare-and-set that makes the record terminal is the commit point.
//     What comes after it, the terminal event and the acknowledgement, is
//     repair work that any process may repeat.
//   - A worker that could not renew in time stops by its own clock.
//
// The revision of the record that a claim wrote is the attempt's epoch. All
// processes of an installation share one lease, the one of the consumers.
package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/deadletter"
	"github.com/penstock-run/penstock/jobs/election"
	"github.com/penstock-run/penstock/jobs/hold"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/skew"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/permit"
	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/recovery"
	"github.com/penstock-run/penstock/jobs/standing"
	"github.com/penstock-run/penstock/jobs/timetable"
)

// Config says how the queue is laid out. The zero value is a single-tenant
// installation on one broker.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	Tenant string // default "default"
	// Role is the one of the connection's credential. All but the operator's
	// take the streams and consumers as they are.
	Role jobs.Role
	// Lease is how long a worker may be silent before its job is given to
	// another; Replicas is how many servers of a cluster keep each stream. An
	// installation has one of each, which a new one is given, 10 s and 1 by
	// default; others than it has take effect where Upgrade is set.
	Lease    time.Duration
	Replicas int
	// Retention is how long a finished job, its key and its specification
	// are kept; default 30 days.
	Retention time.Duration
	// DeadRetention is how long a dead letter is kept; default 90 days.
	DeadRetention time.Duration
	// Upgrade changes streams that exist to this configuration. It is for
	// the dispatcher; all other processes take them as they are.
	Upgrade bool
	// Bind takes what is on the broker as it is, and makes nothing there.
	Bind bool
	// Bounds are those of attempts.
	Bounds jobs.Bounds
	// Finished, if not nil, is called in place of what [Queue.EndWith] is given.
	Finished func(ctx context.Context, rec jobs.Record) error
	Hooks    Hooks
}

// Hooks let a program watch a [Queue]. Every field may be nil. Hooks run on
// the caller's goroutine and must not block.
type Hooks struct {
	// Claimed: an attempt begins, waited after the job could be claimed.
	Claimed func(rec jobs.Record, waited time.Duration)
	// Settled: an attempt has ended and the record says how.
	Settled func(rec jobs.Record)
	// WorkerLost: a worker stopped answering, and this process has written that. The record
	// is as the worker left it; last is its last heartbeat, by the broker's clock.
	WorkerLost func(rec jobs.Record, last time.Time)
	// LeaseLost: a claim of this process may not act any more.
	LeaseLost func(rec jobs.Record)
	// Redelivered: the broker offers a job again; state is what its record
	// says. An executing one is left alone if its worker is alive.
	Redelivered func(rec jobs.Record)
	// Repaired: a step that a crash had left undone was done.
	Repaired func(rec jobs.Record, what string)
	// Refused: a message of a queue was not one of a job, and was filed.
	Refused func(subject, reason string)
}

// A Queue is a tenant's view of the work queue. Its methods may be called
// from any goroutine.
type Queue struct {
	record.Store // reads

	cfg        Config
	names      subject.Names
	conn       *wire.Conn
	opened     time.Time // heartbeats count their moments from here
	election   *election.Election
	lanes      *lane.Lanes
	clock      *skew.Clock
	deliveries delivery.Deliveries

	mu       sync.Mutex
	claimers map[string]*delivery.Claimers // by queues and labels
	looked   time.Time                     // when the store last had room
}

// Open creates what is missing on the broker, or binds to what is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Queue, error) {
	q, err := bind(nc, cfg)
	if err != nil {
		return nil, err
	}
	return q, q.create(ctx)
}

func bind(nc *nats.Conn, cfg Config) (*Queue, error) {
	setDefault(&cfg.Tenant, "default")
	setDefault(&cfg.Retention, 30*day)
	names, err := subject.New(cfg.Prefix)
	if err := errors.Join(err, jobs.CheckToken("tenant", cfg.Tenant)); err != nil {
		return nil, err
	}
	conn, err := wire.New(nc, cfg.Role)
	if err != nil {
		return nil, err
	}
	conn.Bound = conn.Bound || cfg.Bind
	q := &Queue{
		cfg: cfg, names: names, conn: conn, opened: time.Now(), election: &election.Election{Conn: conn, Names: names},
		lanes: lane.New(conn, names, cfg.layout()), clock: skew.New(), deliveries: delivery.New(conn, names), claimers: map[string]*delivery.Claimers{},
	}
	q.Store = record.New(conn, names, func(e record.Entry) { q.clock.Sighted(e) })
	return q, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// EndWith gives the queue what appends a job's terminal event to its session. It is
// called for a job whose record is terminal, before its message is removed, also in
// repairs, and must be idempotent. Dispatchers and workers give it to their queue
// when they are made, so that each process that can end a job announces the end.
func (q *Queue) EndWith(finish func(ctx context.Context, rec jobs.Record) error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.cfg.Finished == nil {
		q.cfg.Finished = finish
	}
}

// finisher returns what appends terminal events, or nil.
func (q *Queue) finisher() func(ctx context.Context, rec jobs.Record) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cfg.Finished
}

// hook calls f unless it is nil.
func hook[A any](f func(A), a A) {
	if f != nil {
		f(a)
	}
}

// Workers returns the workers of the pool.
func (q *Queue) Workers() presence.Workers {
	return presence.Workers{Conn: q.conn, Names: q.names, Tenant: q.cfg.Tenant}
}

// Timetable returns the cron schedules.
func (q *Queue) Timetable() timetable.Timetable {
	return timetable.Timetable{Conn: q.conn, Names: q.names, Tenant: q.cfg.Tenant, Late: q.cfg.Lease * 3 / 2}
}

// DeadLetters returns the dead letters.
func (q *Queue) DeadLetters() deadletter.Letters {
	return deadletter.New(q.conn, q.names, q.Store)
}

// Holds returns which queues and batches are held.
func (q *Queue) Holds() hold.Holds { return hold.New(q.conn) }

// Permits returns the caps, and who has their permits.
func (q *Queue) Permits() permit.Permits {
	return permit.New(q.conn, q.Store, q.put, decideWithin)
}

// Standings says what keeps jobs where they are.
func (q *Queue) Standings() standing.Standings {
	return standing.Standings{
		Conn: q.conn, Names: q.names, Records: q.Store, Holds: q.Holds(), Permits: q.Permits(), Lanes: q.lanes,
		Workers: q.Workers(), Election: q.election,
	}
}

// Recovery compares the records with what else is known of their jobs.
func (q *Queue) Recovery() recovery.Recovery {
	return recovery.New(recovery.Config{Conn: q.conn, Records: q.Store, Tenant: q.cfg.Tenant, Retention: q.cfg.Retention, Learn: q.relearn})
}
