package queue

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/skew"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// StaleAck acknowledges a claim's message even if another worker has the lease
// now, as a defective worker would.
func StaleAck(ctx context.Context, c *Claim) error { return c.q.deliveries.Ack(ctx, c.d) }

// ParkOnly is the first half of parking a claim.
func ParkOnly(ctx context.Context, c *Claim, until time.Time) error {
	return c.commitParked(ctx, "a question", until)
}

// TakeKey is the first half of accepting a job with a key.
func TakeKey(ctx context.Context, q *Queue, id string, job jobs.Job) error {
	if _, _, err := q.keepSpec(ctx, id, job); err != nil {
		return err
	}
	_, err := q.takeKey(ctx, jobs.NewRecord(id, q.cfg.Tenant, job, time.Now()), nil)
	return err
}

// GiveBack makes the broker deliver a claim's message again at once, as it
// does after a crash that made it forget the delivery.
func GiveBack(c *Claim) error { return c.q.deliveries.Again(c.d) }

// Bury files a dead letter again.
func Bury(ctx context.Context, q *Queue, letter jobs.DeadLetter) error {
	return q.DeadLetters().Keep(ctx, letter)
}

// Bind returns a queue that finds the lanes of its classes on the broker.
func Bind(nc *nats.Conn, cfg Config, classes ...string) (*Queue, error) {
	q, err := bind(nc, cfg)
	if err != nil {
		return nil, err
	}
	for _, class := range classes {
		for _, lane := range subject.Lanes {
			q.lanes.Know(class, lane, q.cfg.Lease)
		}
	}
	return q, nil
}

// TakePermit is the first half of claiming a job that a cap bounds, at a time.
func TakePermit(ctx context.Context, q *Queue, id string, at time.Time) error {
	e, err := q.Read(ctx, id)
	if err != nil {
		return err
	}
	caps, err := q.Permits().Caps(ctx)
	if err == nil {
		_, _, err = q.Permits().Take(ctx, caps.Of(e.Record), e, at)
	}
	return err
}

// Age is how old a record is taken for that was written at a time.
func (q *Queue) Age(at, now time.Time, promised time.Duration) time.Duration {
	return q.clock.Age(at, now, promised)
}

// Silence is how many leases a worker may be silent.
const Silence = skew.Silence

// HoldBack lets the broker offer a claim's job again much later, as one does
// whose clock was set back.
func (c *Claim) HoldBack() error { return c.q.deliveries.Nak(c.d, time.Hour) }

// Undelivered is how many messages of a class the broker has counted that no worker has
// been given.
func Undelivered(ctx context.Context, q *Queue, class string) (uint64, error) {
	n := uint64(0)
	for _, lane := range subject.Lanes {
		con, err := q.conn.JS.Consumer(ctx, subject.QueueStream(class, lane), subject.Consumer)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return 0, err
		}
		n += con.CachedInfo().NumPending
	}
	return n, nil
}

// UntilBeat is when a claim on a queue that was opened then sends its next heartbeat.
func UntilBeat(opened time.Time, lease time.Duration) time.Duration {
	return (&Claim{q: &Queue{opened: opened}, lease: lease}).untilBeat()
}
