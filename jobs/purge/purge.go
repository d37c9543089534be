// Package purge removes all that a pool keeps of jobs that have ended. It is the one place
// that knows every stream and bucket that has something of a job.
//
//	record: purging ─▶ events ─▶ results, artifacts ─▶ letter, schedule, message, key, specification ─▶ record
//
// The mark on the record comes first: from then on nothing brings the job back. The record
// goes last: a purge that was interrupted finds by it what is left to do, and is repeated.
// In the place of the record a note stays, without anything of the job but its id, so that
// workers do not store what they find of it later.
//
// A session is purged as a whole, with all of its jobs, because the numbers of its events
// have no gaps.
//
// What stays: the entries of the audit log, from which nothing can be removed, and the
// attempts of webhooks. Both name the job by its id and have nothing of it. What the broker
// was told to remove it returns to nobody; in the files of its store the bytes stay until
// it writes their block anew.
package purge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/queue"
)

// noted is for how long the note stays that a job was purged: longer than a worker
// is away that has something of it on its disk.
const noted = 180 * 24 * time.Hour

// A Purger removes jobs. Its methods may be called from any goroutine.
type Purger struct {
	conn  *wire.Conn
	names subject.Names
	store *artifact.Store
}

// New returns what removes the jobs of a pool. It does no I/O.
func New(q *queue.Queue, store *artifact.Store) *Purger {
	bus := q.Questions()
	return &Purger{bus.Conn, bus.Names, store}
}

// Find returns the record of a job, also of one whose purge was interrupted. Id is the whole one.
func (p *Purger) Find(ctx context.Context, id string) (jobs.Record, error) {
	_, rec, err := p.record(ctx, id)
	return rec, err
}

// Session removes a session and all of its jobs, and returns how many messages of the broker
// that were. A job that has not finished is [jobs.ErrNotFinished], and nothing is removed then.
// It may be repeated after each error.
func (p *Purger) Session(ctx context.Context, session string, list []jobs.Record) (removed int, err error) {
	if err := jobs.CheckToken("session", session); err != nil {
		return 0, err
	}
	for _, rec := range list {
		if rec.State != jobs.Finished {
			return 0, notFinished(rec)
		}
	}
	for _, rec := range list {
		if err := p.begin(ctx, rec.ID); err != nil {
			return 0, fmt.Errorf("purge job %s: %w", rec.ID, err)
		}
	}
	tenant := "*" // a job whose record has expired does not say
	for _, rec := range list {
		tenant = cmp.Or(rec.Tenant, tenant)
	}
	events := wire.Range{Stream: subject.Events, Subject: p.names.SessionEvents(tenant, session)}
	if removed, err = events.Remove(ctx, p.conn); err != nil {
		return removed, fmt.Errorf("purge session %s: %w", session, err)
	}
	for _, rec := range list {
		n, err := p.job(ctx, rec)
		if removed += n; err != nil {
			return removed, fmt.Errorf("purge job %s: %w", rec.ID, err)
		}
	}
	return removed, nil
}

func notFinished(rec jobs.Record) error {
	return fmt.Errorf("purge job %s: %w: it is %s: cancel it, and purge it when it has ended", rec.ID, jobs.ErrNotFinished, rec.State)
}

// begin marks the record of a job. One that is gone needs no mark.
func (p *Purger) begin(ctx context.Context, id string) error {
	for {
		m, rec, err := p.record(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil || rec.Purging {
			return err
		}
		if rec.State != jobs.Finished {
			return notFinished(rec)
		}
		// A newer release may have written more than this one knows.
		var all map[string]json.RawMessage
		if err := json.Unmarshal(m.Data, &all); err != nil {
			return err
		}
		all["purging"] = json.RawMessage("true")
		data, err := json.Marshal(all)
		if err != nil {
			return err
		}
		_, err = p.conn.Put(ctx, wire.Write{Stream: records, Subject: m.Subject, Data: data, Expect: m.Seq, TTL: noted})
		if !errors.Is(err, wire.ErrConflict) {
			return err
		}
	}
}

var records = subject.KVStream(subject.Jobs)

func (p *Purger) record(ctx context.Context, id string) (m wire.Message, rec jobs.Record, err error) {
	if m, err = p.conn.Last(ctx, records, subject.Key(subject.Jobs, "*."+id)); err != nil {
		return m, rec, err
	}
	if m.Gone() {
		return m, rec, jobs.ErrNotFound
	}
	return m, rec, json.Unmarshal(m.Data, &rec)
}

// job removes what is kept of a job beside its session, and its record at last.
func (p *Purger) job(ctx context.Context, rec jobs.Record) (removed int, err error) {
	if removed, err = p.store.Purge(ctx, rec.ID); err != nil {
		return removed, err
	}
	places := []wire.Range{
		{Stream: subject.Dead, Subject: p.names.DeadLetter("*", "*", rec.ID)},
		{Stream: subject.Schedules, Subject: p.names.Sched("*", rec.ID)},
		{Stream: subject.Schedules, Subject: p.names.Due("*", "*", "*", rec.ID)},
		{Stream: subject.KVStream(subject.Specs), Subject: subject.Key(subject.Specs, rec.ID)},
		{Stream: subject.KVStream(subject.Workers), Subject: subject.Touched(rec.ID)},
		{Stream: subject.KVStream(subject.Workers), Subject: subject.Overlap(rec.ID, "*")},
		{Stream: subject.KVStream(subject.Workers), Subject: subject.Overlap("*", rec.ID)},
	}
	if rec.Class != "" { // the record is there
		places = append(places, wire.Range{Stream: subject.QueueStream(rec.Class, rec.Lane), Subject: p.names.Queue(rec.Class, rec.Lane, "*", rec.ID)})
	}
	for _, place := range places {
		n, err := place.Remove(ctx, p.conn)
		if removed += n; err != nil && !wire.NoStream(err) {
			return removed, fmt.Errorf("%s: %w", place.Stream, err)
		}
	}
	n, err := p.key(ctx, rec)
	if removed += n; err != nil {
		return removed, err
	}
	n, err = p.end(ctx, rec.ID)
	return removed + n, err
}

// key removes the job's key, unless it belongs to another one by now.
func (p *Purger) key(ctx context.Context, rec jobs.Record) (removed int, err error) {
	if rec.Key == "" {
		return 0, nil
	}
	at := wire.Range{Stream: subject.KVStream(subject.Keys), Subject: subject.Key(subject.Keys, jobs.HashKey(rec.Tenant, rec.Key))}
	m, err := p.conn.Last(ctx, at.Stream, at.Subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return 0, nil
	}
	if err != nil || !strings.Contains(string(m.Data), rec.ID) {
		return 0, err
	}
	return at.Remove(ctx, p.conn)
}

// end puts the note in the place of the record, which only goes by that. Everyone who watches
// the records hears of it. Another purge of the same job may be first.
func (p *Purger) end(ctx context.Context, id string) (removed int, err error) {
	for {
		m, rec, err := p.record(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			return 0, nil
		}
		if err == nil && !rec.Purging {
			err = errors.New("its record has changed meanwhile: purge it again")
		}
		if err != nil {
			return 0, err
		}
		note := wire.Write{Stream: records, Subject: m.Subject, Header: nats.Header{subject.PurgedHeader: {"true"}}, Expect: m.Seq, TTL: noted}
		if err = part.Remove(ctx, p.conn, note); !errors.Is(err, wire.ErrConflict) {
			return 1, err
		}
	}
}
