// Package review notes in the record of a finished job what a person has decided about its
// result.
//
//	unreviewed ◀─▶ accepted ─▶ delivered
//	     ▲    └──▶ rejected
//	     └── the job goes on, or is retried
//
// A review names the attempt whose result it is about. It is written by compare-and-set, and
// refused where the job has another result by then, so that no result is accepted that
// the person has not seen.
package review

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/queue"
)

// A Reviewer writes reviews. Its methods may be called from any goroutine.
type Reviewer struct {
	queue *queue.Queue
	conn  *wire.Conn
}

// New returns what reviews the jobs of a pool. It does no I/O.
func New(q *queue.Queue) *Reviewer { return &Reviewer{q, q.Questions().Conn} }

// Set writes a review of a job, whose id may be abbreviated, and returns its record. The
// review's epoch, where it is not zero, is that of the result which was looked at. A job
// that has not finished is [jobs.ErrNotFinished].
func (r *Reviewer) Set(ctx context.Context, id string, review jobs.Review) (jobs.Record, error) {
	id, err := r.queue.Resolve(ctx, id)
	if err != nil {
		return jobs.Record{}, err
	}
	if _, err := r.queue.Get(ctx, id); err != nil { // which knows what is purged
		return jobs.Record{}, err
	}
	seen := review.Epoch
	for {
		m, err := r.conn.Last(ctx, records, subject.Key(subject.Jobs, "*."+id))
		if err == nil && m.Gone() {
			err = jobs.ErrNotFound
		}
		var rec jobs.Record
		if err == nil {
			err = json.Unmarshal(m.Data, &rec)
		}
		if err != nil {
			return rec, fmt.Errorf("review job %s: %w", id, err)
		}
		switch {
		case rec.Purging:
			return rec, fmt.Errorf("review job %s: %w", id, jobs.ErrPurged)
		case rec.State != jobs.Finished:
			return rec, fmt.Errorf("review job %s: %w: it is %s", id, jobs.ErrNotFinished, rec.State)
		case seen != 0 && rec.Epoch != seen:
			return rec, &jobs.CodedError{Code: jobs.CodeExists, Message: fmt.Sprintf("job %s has another result than the one that was reviewed: look at it anew", id)}
		}
		review.Epoch = rec.Epoch
		rec.Review = &review
		if review.State == jobs.Unreviewed {
			rec.Review = nil
		}
		err = r.put(ctx, m, rec.Review)
		if !errors.Is(err, wire.ErrConflict) {
			return rec, err
		}
	}
}

var records = subject.KVStream(subject.Jobs)

// put writes the record with the review, if it has not changed. It expires when it would have
// without, and keeps what a newer release may have written.
func (r *Reviewer) put(ctx context.Context, m wire.Message, review *jobs.Review) error {
	var all map[string]json.RawMessage
	err := json.Unmarshal(m.Data, &all)
	if err != nil {
		return err
	}
	if delete(all, "review"); review != nil {
		if all["review"], err = json.Marshal(review); err != nil {
			return err
		}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return err
	}
	w := wire.Write{Stream: records, Subject: m.Subject, Data: data, Expect: m.Seq}
	if seconds, err := strconv.ParseInt(m.Header.Get("Nats-TTL"), 10, 64); err == nil {
		w.TTL = max(time.Second, time.Duration(seconds)*time.Second-time.Since(m.Time))
	}
	_, err = r.conn.Put(ctx, w)
	return err
}
