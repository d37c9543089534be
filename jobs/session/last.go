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
