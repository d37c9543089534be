package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// RunAdvisories finishes the jobs that the broker itself has given up, until
// ctx ends. The queue's consumers are made to deliver for ever; this is for
// those that an administrator has changed. Such a message stays in its stream,
// is never delivered again, and the broker says so once.
func (q *Queue) RunAdvisories(ctx context.Context) error {
	return q.deliveries.Consume(ctx, subject.Advisories, subject.Taker, q.advised)
}

func (q *Queue) advised(ctx context.Context, msg *nats.Msg) error {
	var advisory struct {
		Stream     string `json:"stream"`
		Consumer   string `json:"consumer"`
		Seq        uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
	}
	exhausted := strings.Contains(msg.Subject, ".MAX_DELIVERIES.")
	// A message that was terminated is gone: if it was a job's, the job is
	// found stranded and offered again.
	if err := json.Unmarshal(msg.Data, &advisory); err == nil && exhausted && advisory.Consumer == subject.Consumer {
		m, err := q.conn.At(ctx, advisory.Stream, advisory.Seq)
		if err == nil {
			err = q.undelivered(ctx, advisory.Stream, m, advisory.Deliveries)
		}
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
	}
	return q.deliveries.Ack(ctx, delivery.Of(msg))
}

// undelivered ends the job of a message that is no longer delivered, and removes
// the message, so that a retry can offer the job again.
func (q *Queue) undelivered(ctx context.Context, stream string, m wire.Message, times int) error {
	_, lane, _, id, err := q.names.ParseQueue(m.Subject)
	if err != nil {
		return nil //nolint:nilerr // not one of our streams
	}
	e, err := q.Read(ctx, id)
	if err != nil {
		return err
	}
	switch e.State {
	case jobs.Executing, jobs.Pending:
		lease, now, err := q.times(ctx, delivery.Delivery{Class: e.Class, Lane: lane})
		if err != nil {
			return err
		}
		if age := now.Sub(e.At); e.State == jobs.Executing && age < lease {
			return fmt.Errorf("job %s: its worker is alive", id) // asked again
		}
		e.Record, _ = e.After(jobs.Undeliverable.Ended(fmt.Sprintf("the broker gave up after %d deliveries", times)), now)
		if e, err = q.put(ctx, e); err != nil {
			return err
		}
		hook(q.cfg.Hooks.Settled, e.Record)
	}
	if e.State == jobs.Finished {
		if err := q.conclude(ctx, e.Record); err != nil {
			return err
		}
	}
	return q.conn.Purge(ctx, stream, m.Subject)
}
