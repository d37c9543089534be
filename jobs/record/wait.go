package record

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Wait returns a job's record as soon as it says that the job has finished,
// which may be at once. It reads the record alone: a session's events may have
// left the log before, and a worker that died may not have written the last one.
// The id is a whole one. A job that is not kept is [jobs.ErrNotFound].
func (s Store) Wait(ctx context.Context, id string) (jobs.Record, error) {
	e, err := s.Read(ctx, id)
	if err != nil || e.State == jobs.Finished {
		return e.Record, err
	}
	span := wire.Range{Stream: subject.KVStream(subject.Jobs), Subject: subject.Key(subject.Jobs, "*."+id), From: e.Rev + 1}
	for m, err := range s.conn.Tail(ctx, span, s.names.ChangedJob(id), nil) {
		if err != nil {
			return jobs.Record{}, fmt.Errorf("wait for job %s: %w", id, err)
		}
		if m.Gone() {
			return jobs.Record{}, fmt.Errorf("wait for job %s: %w", id, jobs.ErrNotFound)
		}
		if e, ok := decodeFound(m); ok && e.State == jobs.Finished {
			return e.Record, nil
		}
	}
	return jobs.Record{}, context.Cause(ctx)
}
