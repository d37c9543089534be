package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/record"
)

// put writes a record if it has not changed since e was read.
func (q *Queue) put(ctx context.Context, e record.Entry) (record.Entry, error) {
	e.Schema = max(e.Schema, jobs.RecordSchema)
	data, err := e.Encode()
	if err != nil {
		return e, err
	}
	w := wire.Write{
		Stream: subject.KVStream(subject.Jobs), Subject: subject.Key(subject.Jobs, e.Class+"."+e.ID),
		Data: data, Expect: e.Rev,
	}
	if e.State == jobs.Finished {
		w.TTL = q.cfg.Retention
	}
	sent := time.Now()
	rev, err := q.conn.Put(ctx, w)
	if err != nil {
		return e, fmt.Errorf("job %s: %w", e.ID, err)
	}
	e.Rev, e.At = rev, sent
	if e.State == jobs.Executing && e.Epoch == 0 {
		e.Epoch = rev
	}
	if e.Lost != nil && q.cfg.Hooks.WorkerLost != nil {
		q.cfg.Hooks.WorkerLost(e.Lost.Record, e.Lost.At)
	}
	e.Lost = nil
	return e, nil
}

// isConflict reports whether a compare-and-set came too late.
func isConflict(err error) bool { return errors.Is(err, wire.ErrConflict) }
