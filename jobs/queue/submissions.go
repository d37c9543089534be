package queue

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
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
	return q.deliveries.Consume(ctx, subject.Intake, subject.Taker, func(ctx context.Context, msg *nats.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		tenant := msg.Subject[strings.LastIndexByte(msg.Subject, '.')+1:]
		s := Submission{ID: intakeID(meta.Timestamp, meta.Sequence.Stream), Chosen: msg.Header.Get(operation.JobIDHeader), Tenant: tenant, Header: msg.Header, Data: msg.Data, At: meta.Timestamp}
		if err := do(ctx, s); err != nil {
			return err
		}
		return q.deliveries.Ack(ctx, delivery.Of(msg))
	})
}

// maxLetter bounds what is kept of a submission.
const maxLetter = 256 << 10

// Reject files a submission that cannot be accepted, with the reason.
func (q *Queue) Reject(ctx context.Context, s Submission, why error) error {
	kept := s.Data[:min(len(s.Data), maxLetter)]
	return q.DeadLetters().Keep(ctx, jobs.DeadLetter{
		ID: s.ID, Kind: jobs.DeadSubmission, At: s.At, Reason: why.Error(), Subject: q.names.Submit(s.Tenant),
		Data: jobs.CensorAddresses(strings.ToValidUTF8(string(kept), "\uFFFD")), Cut: len(kept) < len(s.Data) || !utf8.Valid(s.Data),
		StoredAt: q.names.DeadLetter("rejected", s.Tenant, s.ID),
	})
}
