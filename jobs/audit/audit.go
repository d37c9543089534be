// Package audit keeps who asked for which change of a pool, and what came of it: in a
// stream from which the broker lets no client remove an entry.
//
//	request ─▶ dispatcher does or refuses it ─▶ Append ─▶ answer
//
// A dispatcher appends the entry before it answers. So whoever has an answer is in the
// log; one that dies in between leaves a change without an entry, and its caller without
// an answer. An entry has neither the request nor the answer: it names an operation, a
// thing, a caller and an outcome.
//
// The log must not stop the pool. Where it takes no entry, because the store is full or
// does not answer, the dispatcher answers all the same, and its own log gets the entry.
// Entries leave by age, and the oldest also where there are too many.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
)

const (
	// most is how many entries are kept: about half a gigabyte.
	most = 2_000_000
	// maxText bounds what callers choose of an entry.
	maxText = 256
	// atOnce is how many entries one request looks at, if few of them are wanted.
	atOnce = 20_000
)

// Config says where the log is. The zero value is an installation on one broker.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	// Role is the one of the connection's credential. The log is the operator's; all
	// other roles are refused.
	Role      jobs.Role
	Replicas  int           // of the stream; default is the installation's, or 1
	Retention time.Duration // of an entry; default 90 days
	// Upgrade changes a stream that exists to this configuration.
	Upgrade bool
}

// A Log keeps entries. Its methods may be called from any goroutine.
type Log struct {
	conn  *wire.Conn
	names subject.Names
}

// Open creates the stream, or binds to the one that is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	conn, names, err := part.Open(ctx, nc, part.Config{
		Prefix: cfg.Prefix, Role: cfg.Role, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade, Assets: cfg.assets,
	})
	if err != nil {
		return nil, err
	}
	return &Log{conn, names}, nil
}

// Assets returns the stream, for callers that compare it. If cfg names no replicas, it
// takes those of the installation.
func Assets(cfg Config, has wire.Installed) ([]wire.Asset, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	return cfg.assets(names, cmp.Or(cfg.Replicas, has.Replicas)), nil
}

func (cfg Config) assets(names subject.Names, replicas int) []wire.Asset {
	return []wire.Asset{wire.StreamAsset(jetstream.StreamConfig{
		Name: subject.Audit, Subjects: []string{names.Audited("*")}, Replicas: replicas,
		MaxAge: cmp.Or(cfg.Retention, 90*24*time.Hour), MaxMsgs: most, MaxMsgSize: 8 << 10,
		Discard: jetstream.DiscardOld, DenyDelete: true, DenyPurge: true,
	}).Compressed()}
}

// Append keeps an entry. The broker numbers and dates it. It waits for the broker once,
// and not longer than ctx or two seconds.
func (l *Log) Append(ctx context.Context, e operation.AuditEntry) error {
	if err := jobs.CheckToken("operation", e.Operation); err != nil {
		return err
	}
	e.About, e.Who = cut(e.About), cut(e.Who)
	data, err := json.Marshal(stored{e.About, e.Who, e.Role, e.Via, e.Outcome})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wire.Patience)
	defer cancel()
	if err := l.conn.Publish(ctx, &nats.Msg{Subject: l.names.Audited(e.Operation), Data: data}); err != nil {
		return fmt.Errorf("append to the audit log: %w", err)
	}
	return nil
}

// stored is what the stream has of an entry, beside its subject, sequence and time.
type stored struct {
	About   string    `json:"about,omitempty"`
	Who     string    `json:"who"`
	Role    jobs.Role `json:"role,omitempty"`
	Via     string    `json:"via"`
	Outcome string    `json:"outcome"`
}

func cut(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}

// Last returns the last entry about an operation, or [jobs.ErrNotFound].
func (l *Log) Last(ctx context.Context, name string) (operation.AuditEntry, error) {
	m, err := l.conn.Last(ctx, subject.Audit, l.names.Audited(name))
	if err != nil {
		return operation.AuditEntry{}, err
	}
	return Decode(m), nil
}

// The operations of entries about backups. No dispatcher hears of them: the command that
// writes backups appends the entry.
const (
	Backup         = "backup"          // it is complete, and was not verified
	BackupVerified = "backup-verified" // it is complete, and was the same when it was restored
	BackupFailed   = "backup-failed"   // there is none
)

// Backups says when the last backups of a pool were taken, as far as its log goes back. Times
// are zero where there was none.
type Backups struct {
	Last     operation.AuditEntry // verified or not
	Verified time.Time            // the last one that was verified
	Failed   operation.AuditEntry // the last one that failed
}

// Backups returns what the log says of backups. It asks the broker three times.
func (l *Log) Backups(ctx context.Context) (b Backups, err error) {
	for name, note := range map[string]func(operation.AuditEntry){
		Backup:         b.complete,
		BackupVerified: func(e operation.AuditEntry) { b.Verified = e.At; b.complete(e) },
		BackupFailed:   func(e operation.AuditEntry) { b.Failed = e },
	} {
		e, err := l.Last(ctx, name)
		switch {
		case err == nil:
			note(e)
		case !errors.Is(err, jobs.ErrNotFound):
			return Backups{}, fmt.Errorf("read the audit log: %w", err)
		}
	}
	return b, nil
}

func (b *Backups) complete(e operation.AuditEntry) {
	if e.At.After(b.Last.At) {
		b.Last = e
	}
}

// Done is the outcome of what was not refused.
const Done = "ok"

// Decode reads an entry as the stream has it. One that cannot be read is still one.
func Decode(m wire.Message) operation.AuditEntry {
	var s stored
	if json.Unmarshal(m.Data, &s) != nil {
		s = stored{Outcome: "unreadable"}
	}
	name := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	return operation.AuditEntry{Seq: m.Seq, At: m.Time.UTC(), Operation: name, About: s.About, Who: s.Who, Role: s.Role, Via: s.Via, Outcome: s.Outcome}
}

// Read returns a page of the entries that a request selects, of at most so many bytes. If
// there are none it waits as long as the request says, until ctx ends.
func (l *Log) Read(ctx context.Context, r operation.AuditRequest, room int) (operation.AuditPage, error) {
	page := operation.AuditPage{Entries: []operation.AuditEntry{}, Next: r.After}
	if r.Limit <= 0 || r.Limit > operation.MaxPage {
		r.Limit = operation.MaxPage
	}
	if r.Since != nil && r.After == 0 {
		begin, err := l.firstSince(ctx, *r.Since)
		if err != nil {
			return page, err
		}
		page.Next = begin - 1
	}
	span := wire.Range{Stream: subject.Audit, Subject: l.names.Audited(cmp.Or(r.Operation, "*")), From: page.Next + 1}
	waiting, stop := context.WithTimeout(ctx, min(time.Duration(r.For), operation.MaxWait))
	if r.For <= 0 {
		waiting, stop = context.WithCancel(ctx)
	}
	defer stop()
	caught := func() bool { return r.For > 0 && len(page.Entries) == 0 }
	size, looked := 1<<10, 0
	for m, err := range l.conn.Tail(waiting, span, l.names.Audited("*"), caught) {
		if err != nil {
			return page, fmt.Errorf("read the audit log: %w", err)
		}
		e := Decode(m)
		if looked++; r.Selects(e) {
			body, err := json.Marshal(e)
			if err != nil {
				return page, err
			}
			if size += len(body) + 1; size > room && len(page.Entries) > 0 {
				page.More = true
				return page, nil
			}
			page.Entries = append(page.Entries, e)
		}
		page.Next = m.Seq
		if len(page.Entries) >= r.Limit || looked >= atOnce {
			page.More = true
			return page, nil
		}
	}
	return page, ctx.Err()
}

// firstSince returns the number of the first entry that is not older than a time, or the
// number that the next entry gets. Entries are in the order of their times.
func (l *Log) firstSince(ctx context.Context, since time.Time) (uint64, error) {
	all := wire.Range{Stream: subject.Audit, Subject: l.names.Audited("*")}
	last, err := l.conn.Last(ctx, all.Stream, all.Subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	low, high := uint64(1), last.Seq+1
	for low < high {
		all.From = low + (high-low)/2
		m, err := l.conn.First(ctx, all)
		switch {
		case errors.Is(err, jobs.ErrNotFound) || err == nil && !m.Time.Before(since):
			high = all.From
		case err != nil:
			return 0, fmt.Errorf("read the audit log: %w", err)
		default:
			low = m.Seq + 1
		}
	}
	return low, nil
}
