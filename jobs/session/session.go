// Package session is a session's event log: append, replay, follow.
//
// All events of a session are one subject of one stream. Their numbers have
// neither gaps nor duplicates, and the broker itself ensures that: every append
// names the place of the session's last event as its writer knows it, and is
// refused if another writer has appended since. An attempt begins by
// appending its job.claimed; the next append of any earlier attempt's writer
// is refused. So a worker that has lost its lease cannot write, and readers
// have nothing to filter.
//
// A watcher reads the stored events and sleeps until the broker announces
// more. The announcement only wakes it; the events always come from the
// stream. So there is no seam between replay and live.
package session

import (
	"bytes"
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
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/internal/part"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Config says how the log is laid out. The zero value is a single-tenant
// installation on one broker.
type Config struct {
	Prefix    string        // of every subject; default "penstock.v1"
	Tenant    string        // default "default"
	Role      jobs.Role     // of the connection's credential
	Replicas  int           // of the stream; default is the installation's, or 1
	Retention time.Duration // of an event; default 30 days
	// MaxBytes bounds the stream, by dropping the oldest events; default is
	// no bound but the server's, which refuses new events instead.
	MaxBytes int64
	// Upgrade changes a stream that exists to this configuration.
	Upgrade bool
	// Bind takes what is on the broker as it is, and makes nothing there.
	Bind bool
}

// A Log is the event logs of a tenant's sessions. Its methods may be called
// from any goroutine.
type Log struct {
	cfg   Config
	names subject.Names
	conn  *wire.Conn

	questions questions
}

// Open creates what is missing on the broker, or binds to what is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Log, error) {
	cfg.Tenant = cmp.Or(cfg.Tenant, "default")
	if err := jobs.CheckToken("tenant", cfg.Tenant); err != nil {
		return nil, err
	}
	conn, names, err := part.Open(ctx, nc, part.Config{
		Prefix: cfg.Prefix, Role: cfg.Role, Replicas: cfg.Replicas, Upgrade: cfg.Upgrade, Bind: cfg.Bind, Assets: cfg.assets,
	})
	if err != nil {
		return nil, err
	}
	return &Log{cfg: cfg, names: names, conn: conn}, nil
}

// Assets returns the streams that the log needs on the broker, for callers that
// compare them. If cfg names no replicas, it takes those of the installation.
func Assets(cfg Config, has wire.Installed) ([]wire.Asset, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	return cfg.assets(names, cmp.Or(cfg.Replicas, has.Replicas)), nil
}

func (cfg Config) assets(names subject.Names, replicas int) []wire.Asset {
	return []wire.Asset{wire.StreamAsset(jetstream.StreamConfig{
		Name: subject.Events, Subjects: []string{names.EventsAll()}, Replicas: replicas,
		MaxAge: cmp.Or(cfg.Retention, 30*24*time.Hour), MaxBytes: cfg.MaxBytes,
		MaxMsgSize: 1 << 20, MaxMsgsPerSubject: 1_000_000, Discard: jetstream.DiscardOld,
		// No compression: it makes the replay of one session among many slow.
		AllowAtomicPublish: true,
		RePublish:          &jetstream.RePublish{Source: names.SessionsAll(), Destination: names.StoredAll(), HeadersOnly: true},
	})}
}

// A Source is the origin of an event. Attempt and Epoch are zero for a process
// that runs no attempt.
type Source struct {
	Job     string
	Session string
	Agent   string
	Attempt int
	Epoch   uint64
	Trace   jobs.Trace // the span that the event is part of
	// Stored, if not nil, is told how many bytes of events the writer has stored more.
	Stored func(bytes int64)
}

func (s Source) stored(events ...[]byte) {
	if s.Stored == nil {
		return
	}
	n := 0
	for _, text := range events {
		n += len(text)
	}
	s.Stored(int64(n))
}

// An end is the last event of a session: its number, and its position in the
// stream. The zero value is that of an empty session.
type end struct {
	seq   uint64
	pos   uint64
	event jobs.Event
}

func (l *Log) end(ctx context.Context, session string) (end, error) {
	m, err := l.conn.Last(ctx, subject.Events, l.names.SessionEvents(l.cfg.Tenant, session))
	if errors.Is(err, jobs.ErrNotFound) {
		return end{}, nil
	}
	if err != nil {
		return end{}, fmt.Errorf("session %s: %w", session, err)
	}
	event, err := decode(m)
	return end{event.Seq, m.Seq, event}, err
}

// header returns the headers of an event: those of a CloudEvent where it tells of the job
// itself. What an agent says comes a thousand times as often, and goes without.
func (l *Log) header(e jobs.Event, data []byte, in jobs.Trace) nats.Header {
	if !ofJob(e) {
		return nil
	}
	told := cloudevent.OfJob(e, l.cfg.Tenant, data)
	told.Trace = in
	return told.Header()
}

func ofJob(e jobs.Event) bool { return strings.HasPrefix(string(e.Kind), "job.") }

// Append adds one event by a process that runs no attempt: a dispatcher, or a
// process that cleans up after a worker. The event goes to the end and fences no
// writer; but no event may follow the end of its job.
func (l *Log) Append(ctx context.Context, src Source, event jobs.Event) (jobs.Event, error) {
	stored, _, err := l.appendAfter(ctx, src, event, func(at end) (bool, error) {
		return at.event.Kind != jobs.JobFinished || at.event.Job != src.Job, nil
	})
	return stored, err
}

// Begin is Append of the first event of a session, without a look at the session: begun is
// false where it has events already, and then nothing is added.
func (l *Log) Begin(ctx context.Context, src Source, event jobs.Event) (begun bool, err error) {
	if err := jobs.CheckToken("session", src.Session); err != nil {
		return false, err
	}
	_, _, err = end{}.add(ctx, l, src, event)
	if errors.Is(err, wire.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// appendAfter adds an event unless allowed, which sees the last event each
// time, says that it is not wanted.
func (l *Log) appendAfter(ctx context.Context, src Source, event jobs.Event, wanted func(end) (bool, error)) (jobs.Event, end, error) {
	if err := jobs.CheckToken("session", src.Session); err != nil {
		return jobs.Event{}, end{}, err
	}
	for {
		at, err := l.end(ctx, src.Session)
		if err != nil {
			return jobs.Event{}, end{}, err
		}
		if ok, err := wanted(at); !ok || err != nil {
			return jobs.Event{}, at, err
		}
		next, now, err := at.add(ctx, l, src, event)
		if !errors.Is(err, wire.ErrConflict) {
			return next, now, err
		}
	}
}

// write returns the write that goes behind an end.
func (at end) write(l *Log, src Source) wire.Write {
	return wire.Write{Stream: subject.Events, Subject: l.names.SessionEvents(l.cfg.Tenant, src.Session), Expect: at.pos}
}

// add adds an event behind an end, unless the session has moved on.
func (at end) add(ctx context.Context, l *Log, src Source, event jobs.Event) (jobs.Event, end, error) {
	next := fill(event, src, at.seq+1)
	data, err := encode(next)
	if err != nil {
		return jobs.Event{}, end{}, err
	}
	write := at.write(l, src)
	write.Header, write.Data = l.header(next, data, src.Trace), data
	place, err := l.conn.Put(ctx, write)
	if errors.Is(err, wire.ErrConflict) {
		place, err = placeAfter(ctx, l.conn, write, err)
	}
	if err != nil {
		return jobs.Event{}, end{}, fmt.Errorf("append %s to session %s: %w", event.Kind, src.Session, err)
	}
	return next, end{next.Seq, place, next}, nil
}

// placeAfter looks for an event that was refused because the session has moved on: it may be
// there all the same, when its answer was lost and others appended behind it. It returns
// its place, or the conflict.
func placeAfter(ctx context.Context, conn *wire.Conn, w wire.Write, conflict error) (uint64, error) {
	for m, err := range conn.Scan(ctx, wire.Range{Stream: w.Stream, Subject: w.Subject, From: w.Expect + 1}) {
		if err != nil {
			return 0, err
		}
		if bytes.Equal(m.Data, w.Data) {
			return m.Seq, nil
		}
	}
	return 0, conflict
}

// Finish appends job.finished, the terminal event of a job, with the result
// as its data. However often it is called, and by whichever process, there is one
// for each time that the job finishes.
func (l *Log) Finish(ctx context.Context, rec jobs.Record, result jobs.Result) error {
	if rec.Finished == nil {
		return fmt.Errorf("job %s has not finished", rec.ID)
	}
	event := event.New(event.JobFinished(result))
	// The moment names the finish: after a retry the same job finishes again.
	event.Time = rec.Finished.UTC()
	src := Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Epoch: rec.Epoch, Trace: rec.Span(rec.Attempt)}
	_, _, err := l.appendAfter(ctx, src, event, func(at end) (bool, error) {
		done, err := l.finished(ctx, rec, at)
		return !done, err
	})
	return err
}

// Finisher returns what appends a finished job's terminal event, with the result that
// a store of results has for it; see [Log.Finish].
func (l *Log) Finisher(result func(context.Context, jobs.Record) (jobs.Result, error)) func(context.Context, jobs.Record) error {
	return func(ctx context.Context, rec jobs.Record) error {
		res, err := result(ctx, rec)
		if err != nil {
			return fmt.Errorf("result of job %s: %w", rec.ID, err)
		}
		return l.Finish(ctx, rec, res)
	}
}

// finished reports whether the session has the record's terminal event. That
// is the last one of an attempt, so as a rule it need not be searched. Only what
// is salvaged may come later, behind another job of the session, and what brings
// the job back.
func (l *Log) finished(ctx context.Context, rec jobs.Record, at end) (bool, error) {
	is := func(e jobs.Event) bool {
		return e.Kind == jobs.JobFinished && e.Job == rec.ID && e.Time.Equal(*rec.Finished)
	}
	mine := at.event.Job == rec.ID
	if mine && at.event.Attempt > rec.Attempt {
		return true, nil // it goes on since
	}
	later := at.event.Kind == jobs.SalvageStored || at.event.Kind == jobs.InputState || at.event.Kind == jobs.JobReopened
	if at.pos == 0 {
		return true, nil // all of it was purged, or is too old: the end alone says nothing
	}
	if mine && !later {
		return is(at.event), nil
	}
	for e, err := range l.Read(ctx, rec.Session, 1) {
		if err != nil || is(e) {
			return err == nil, err
		}
	}
	return false, nil
}

// fill completes an event with what the log knows.
func fill(event jobs.Event, src Source, seq uint64) jobs.Event {
	event.Seq, event.Job, event.Session, event.Attempt, event.Agent = seq, src.Job, src.Session, src.Attempt, src.Agent
	if event.Time.IsZero() {
		event.Time = time.Now().UTC()
	}
	return event
}

func decode(m wire.Message) (jobs.Event, error) {
	var event jobs.Event
	if err := json.Unmarshal(m.Data, &event); err != nil {
		if m.Seq == 0 { // only its data was read
			return jobs.Event{}, fmt.Errorf("read an event: %w", err)
		}
		return jobs.Event{}, fmt.Errorf("event at %d of %s: %w", m.Seq, m.Subject, err)
	}
	return event, nil
}
