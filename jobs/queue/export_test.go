package queue

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
)

// StaleAck acknowledges a claim's message whoever has the lease now: what a
// worker with a defect would do.
func StaleAck(ctx context.Context, c *Claim) error { return c.q.ack(ctx, c.d) }

// TakeKey is the first half of accepting a job with a key.
func TakeKey(ctx context.Context, q *Queue, id string, job jobs.Job, spec []byte) error {
	if err := q.store(ctx, subject.Specs, id, spec); err != nil {
		return err
	}
	_, err := q.takeKey(ctx, jobs.NewRecord(id, q.cfg.Tenant, job, time.Now()))
	return err
}

// GiveBack makes the broker deliver a claim's message again at once, as it
// does after a crash that made it forget the delivery.
func GiveBack(c *Claim) error { return c.q.again(c.d) }

// Bury files a dead letter again.
func Bury(ctx context.Context, q *Queue, letter DeadLetter) error { return q.bury(ctx, letter) }

// Bind returns a queue that finds the lanes of its classes on the broker.
func Bind(nc *nats.Conn, cfg Config, classes ...string) (*Queue, error) {
	q, err := bind(nc, cfg)
	if err != nil {
		return nil, err
	}
	for _, class := range classes {
		for _, lane := range subject.Lanes {
			q.lanes[subject.QueueStream(class, lane)] = q.cfg.Lease
		}
	}
	return q, nil
}
