package session

import (
	"context"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// Reopen appends job.reopened: a job that had finished will go on. Rec is its
// record as it stood then. Once its next attempt has begun, that says as much.
func (l *Log) Reopen(ctx context.Context, rec jobs.Record, by string) error {
	src := Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Trace: rec.Span(rec.Attempt)}
	_, _, err := l.appendAfter(ctx, src, event.New(event.JobReopened{By: by}), func(at end) (bool, error) {
		mine := at.event.Job == rec.ID
		return !mine || at.event.Attempt <= rec.Attempt && at.event.Kind != jobs.JobReopened, nil
	})
	return err
}
