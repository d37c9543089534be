package session

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Last returns the last event of a record's job, but for those that may come
// behind its end without bringing it back; nil where there is none.
func (l *Log) Last(ctx context.Context, rec jobs.Record) (*jobs.Event, error) {
	at, err := l.end(ctx, rec.Session)
	if err != nil || at.pos == 0 {
		return nil, err
	}
	counts := func(e jobs.Event) bool { return lastOf(rec, e) }
	if counts(at.event) {
		return &at.event, nil
	}
	var last *jobs.Event // the session may be another job's, too
	for e, err := range l.Read(ctx, rec.Session, 1) {
		if err != nil {
			return nil, err
		}
		if counts(e) {
			last = &e
		}
	}
	return last, nil
}

// lastOf reports whether an event is one of a record's job that Last may return.
func lastOf(rec jobs.Record, e jobs.Event) bool {
	return e.Job == rec.ID && e.Kind != jobs.SalvageStored && e.Kind != jobs.InputState
}

// Lasts is Last for many records: it returns the events by job, without those that there are
// not. An error is about jobs that are left out. It takes few requests where the last event
// of a session is the one, as a rule.
func (l *Log) Lasts(ctx context.Context, records []jobs.Record) (map[string]jobs.Event, error) {
	subjects := make([]string, len(records))
	for i, rec := range records {
		subjects[i] = l.names.SessionEvents(l.cfg.Tenant, rec.Session)
	}
	slices.Sort(subjects)
	messages, complete, err := wire.Range{Stream: subject.Events}.LastOf(ctx, l.conn, slices.Compact(subjects))
	if err != nil {
		return nil, fmt.Errorf("last events of sessions: %w", err)
	}
	ends := map[string]jobs.Event{}
	for _, m := range messages {
		if e, err := decode(m); err == nil {
			ends[m.Subject] = e
		}
	}
	lasts := map[string]jobs.Event{}
	var wrong []error
	for _, rec := range records {
		end, ok := ends[l.names.SessionEvents(l.cfg.Tenant, rec.Session)]
		switch {
		case ok && complete && lastOf(rec, end):
			lasts[rec.ID] = end
			continue
		case !ok && complete && len(ends) == len(messages):
			continue // it has none
		}
		last, err := l.Last(ctx, rec)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("last event of job %s: %w", rec.ID, err))
		}
		if last != nil {
			lasts[rec.ID] = *last
		}
	}
	return lasts, errors.Join(wrong...)
}

// Before returns the newest events of a session whose numbers are less than before, at
// most so many, in their order. Zero is behind the last one.
func (l *Log) Before(ctx context.Context, session string, before uint64, most int) ([]jobs.Event, error) {
	at, err := l.end(ctx, session)
	if err != nil || at.pos == 0 {
		return nil, err
	}
	if before == 0 || before > at.seq+1 {
		before = at.seq + 1
	}
	var events []jobs.Event
	for e, err := range l.Read(ctx, session, before-min(before, uint64(most))) {
		if err != nil {
			return nil, err
		}
		if e.Seq >= before {
			break
		}
		events = append(events, e)
	}
	return events, nil
}
