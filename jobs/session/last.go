package session

import (
	"context"

	"github.com/penstock-run/penstock/jobs"
)

// Last returns the last event of a record's job, but for those that may come
// behind its end without bringing it back; nil where there is none.
func (l *Log) Last(ctx context.Context, rec jobs.Record) (*jobs.Event, error) {
	at, err := l.end(ctx, rec.Session)
	if err != nil || at.pos == 0 {
		return nil, err
	}
	counts := func(e jobs.Event) bool {
		return e.Job == rec.ID && e.Kind != jobs.SalvageStored && e.Kind != jobs.InputState
	}
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
