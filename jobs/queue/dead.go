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
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// maxLetter bounds what is kept of a submission.
const maxLetter = 256 << 10

// Reject files a submission that cannot be accepted, with the reason.
func (q *Queue) Reject(ctx context.Context, s Submission, why error) error {
	kept := s.Data[:min(len(s.Data), maxLetter)]
	return bury(ctx, q.conn, jobs.DeadLetter{
		ID: s.ID, Kind: jobs.DeadSubmission, At: s.At, Reason: why.Error(), Subject: q.names.Submit(s.Tenant),
		Data: jobs.CensorAddresses(strings.ToValidUTF8(string(kept), "\uFFFD")), Cut: len(kept) < len(s.Data) || !utf8.Valid(s.Data),
		StoredAt: q.names.DeadLetter("rejected", s.Tenant, s.ID),
	})
}

// file keeps a message that is removed from its queue.
func (q *Queue) file(ctx context.Context, d delivery, why error) error {
	name := "unknown"
	if meta, err := (&nats.Msg{Reply: d.reply, Sub: &nats.Subscription{}}).Metadata(); err == nil {
		name = "message-" + d.lane + "-" + strconv.FormatUint(meta.Sequence.Stream, 10)
	}
	return bury(ctx, q.conn, jobs.DeadLetter{
		ID: name, Kind: jobs.DeadMessage, At: time.Now().UTC(), Reason: why.Error(), Subject: d.subject,
		StoredAt: q.names.DeadLetter(d.class, q.cfg.Tenant, name),
	})
}

// letterOf is the dead letter of a job.
func (q *Queue) letterOf(rec jobs.Record) jobs.DeadLetter {
	return jobs.DeadLetter{
		ID: rec.ID, Kind: jobs.DeadJob, At: time.Now().UTC(), Reason: string(rec.Reason), Record: rec,
		StoredAt: q.names.DeadLetter(rec.Class, rec.Tenant, rec.ID),
	}
}

// dead reports whether a job has ended so that it has a dead letter.
func dead(rec jobs.Record) bool {
	return rec.State == jobs.Finished && (rec.Outcome == jobs.Error || rec.Outcome == jobs.TimedOut)
}

func bury(ctx context.Context, conn *wire.Conn, letter jobs.DeadLetter) error {
	body, err := json.Marshal(letter)
	if err != nil {
		return err
	}
	if err := conn.Publish(ctx, message(letter.StoredAt, body)); err != nil {
		return fmt.Errorf("file dead letter %s: %w", letter.ID, err)
	}
	return nil
}

// Dead returns the dead letters, oldest first.
func (q *Queue) Dead(ctx context.Context) ([]jobs.DeadLetter, error) {
	found, err := letters(ctx, q.conn, q.names.DeadAll())
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, letter := range found {
		if letter.Kind == jobs.DeadJob {
			ids = append(ids, letter.ID)
		}
	}
	records, err := q.Records(ctx, ids)
	return withoutAlive(found, records), err
}

// Letter returns the dead letter with an id; there is none if the error is
// [jobs.ErrNotFound].
func (q *Queue) Letter(ctx context.Context, id string) (jobs.DeadLetter, error) {
	if jobs.CheckToken("id", id) != nil { // so it is no subject's end
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %q: %w", id, jobs.ErrNotFound)
	}
	found, err := letters(ctx, q.conn, q.names.DeadLetter("*", "*", id))
	if err != nil {
		return jobs.DeadLetter{}, err
	}
	switch rec, err := q.Read(ctx, id); {
	case err == nil:
		found = withoutAlive(found, []jobs.Record{rec.Record})
	case !errors.Is(err, jobs.ErrNotFound):
		return jobs.DeadLetter{}, err
	}
	if len(found) == 0 {
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %q: %w", id, jobs.ErrNotFound)
	}
	return found[0], nil
}

// letters reads the dead letters of a subject, the oldest first.
func letters(ctx context.Context, conn *wire.Conn, of string) ([]jobs.DeadLetter, error) {
	var found []jobs.DeadLetter
	for m, err := range conn.Scan(ctx, wire.Range{Stream: subject.Dead, Subject: of}) {
		if err != nil {
			return nil, fmt.Errorf("list dead letters: %w", err)
		}
		found = append(found, readLetter(m))
	}
	return found, nil
}

// withoutAlive removes the letters of jobs that are alive. A process that brings a job back
// writes the record first, and may die then.
func withoutAlive(letters []jobs.DeadLetter, records []jobs.Record) []jobs.DeadLetter {
	alive := map[string]bool{}
	for _, rec := range records {
		alive[rec.ID] = !dead(rec)
	}
	return slices.DeleteFunc(letters, func(l jobs.DeadLetter) bool { return l.Kind == jobs.DeadJob && alive[l.ID] })
}

func readLetter(m wire.Message) jobs.DeadLetter {
	var letter jobs.DeadLetter
	if err := json.Unmarshal(m.Data, &letter); err != nil {
		letter = jobs.DeadLetter{Kind: jobs.DeadMessage, Subject: m.Subject, Reason: "unreadable: " + err.Error(), At: m.Time}
	}
	letter.StoredAt, letter.Seq = m.Subject, m.Seq
	letter.Record.Repo, letter.Data = jobs.WithoutCredentials(letter.Record.Repo), jobs.CensorAddresses(letter.Data)
	if letter.ID == "" { // of a version that kept it in the subject only
		parts := strings.Split(m.Subject, ".")
		letter.ID, letter.Kind = parts[len(parts)-1], jobs.DeadMessage
		switch {
		case letter.Record.ID != "":
			letter.Kind = jobs.DeadJob
		case len(parts) > 3 && parts[len(parts)-3] == "rejected":
			letter.Kind = jobs.DeadSubmission
		}
	}
	return letter
}

// Drop removes a dead letter. A job stays as it is.
func (q *Queue) Drop(ctx context.Context, letter jobs.DeadLetter) error {
	if err := q.conn.Purge(ctx, subject.Dead, letter.StoredAt); err != nil {
		return fmt.Errorf("drop dead letter %s: %w", letter.ID, err)
	}
	return nil
}

// RunAdvisories finishes the jobs that the broker itself has given up, until
// ctx ends. The queue's consumers are made to deliver for ever; this is for
// those that an administrator has changed. Such a message stays in its stream,
// is never delivered again, and the broker says so once.
func (q *Queue) RunAdvisories(ctx context.Context) error {
	return q.consume(ctx, subject.Advisories, subject.Taker, q.advised)
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
	return q.ack(ctx, delivery{subject: msg.Subject, reply: msg.Reply})
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
		lease, now, err := q.clock(ctx, delivery{class: e.Class, lane: lane})
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
