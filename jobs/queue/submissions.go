package queue

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A Submission is a job that some client has published, not yet validated.
type Submission struct {
	// ID is always the same for the same publish: accept the job as this
	// one, and a crash before the acknowledgement does not double it. Chosen is
	// the id that the publisher has asked for instead, as it was written; empty,
	// it has not.
	ID     string
	Chosen string
	Tenant string
	Header map[string][]string
	Data   []byte
	At     time.Time
}

// Submissions hands what clients published to do, one at a time, until ctx
// ends. A submission is removed when do returns nil, else it comes again.
func (q *Queue) Submissions(ctx context.Context, do func(ctx context.Context, s Submission) error) error {
	return q.consume(ctx, subject.Intake, subject.Taker, func(ctx context.Context, msg *nats.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		tenant := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
		s := Submission{ID: intakeID(meta.Timestamp, meta.Sequence.Stream), Chosen: msg.Header.Get(operation.JobIDHeader), Tenant: tenant, Header: msg.Header, Data: msg.Data, At: meta.Timestamp}
		if err := do(ctx, s); err != nil {
			return err
		}
		return q.ack(ctx, delivery{subject: msg.Subject, reply: msg.Reply})
	})
}
