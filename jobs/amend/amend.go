// Package amend writes what stands in a job's record beside its state: what a person has decided
// about the result, what has become of the pull request, and what more the job may spend.
//
//	unreviewed ◀─▶ accepted ─▶ delivered
//	     ▲    └──▶ rejected
//	     └── the job goes on, or is retried
//
// Each is about the result of one attempt. It is written by compare-and-set, and refused where
// the job has another result by then, so that no result is accepted that the person has not seen.
package amend

import (
	"bytes"
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

// fields are the names of what is written here; nothing else of a record changes.
var fields = []string{"review", "pull_request", "raised"}

// Review writes a review of a job, whose id may be abbreviated, and returns its record. The
// review's epoch, where it is not zero, is that of the result which was looked at. A job
// that has not finished is [jobs.ErrNotFinished].
func Review(ctx context.Context, q *queue.Queue, id string, review jobs.Review) (jobs.Record, error) {
	id, err := q.Resolve(ctx, id)
	if err != nil {
		return jobs.Record{}, err
	}
	seen := review.Epoch
	return change(ctx, q, id, func(now *jobs.Record) error {
		switch {
		case now.State != jobs.Finished:
			return fmt.Errorf("%w: it is %s", jobs.ErrNotFinished, now.State)
		case seen != 0 && now.Epoch != seen:
			return &jobs.CodedError{Code: jobs.CodeExists, Message: fmt.Sprintf("job %s has another result than the one that was reviewed: look at it anew", id)}
		}
		review.Epoch = now.Epoch
		now.Review = &review
		if review.State == jobs.Unreviewed {
			now.Review = nil
		}
		return nil
	})
}

// WantPullRequest has the record of a finished job say that a pull request is wanted of its
// result, or wanted again where the forge has refused it. One that is open stays. The error is
// [jobs.ErrFenced] where the job has another attempt than rec meanwhile.
func WantPullRequest(ctx context.Context, q *queue.Queue, rec jobs.Record) (jobs.Record, error) {
	return change(ctx, q, rec.ID, func(now *jobs.Record) error {
		switch {
		case now.State != jobs.Finished || now.Epoch != rec.Epoch:
			return jobs.ErrFenced
		case now.PullRequest == nil || !now.PullDue() && now.PullRequest.State != jobs.PullOpen:
			now.PullRequest = &jobs.PullRequest{State: jobs.PullWanted}
		}
		deliver(now)
		return nil
	})
}

// SetPullRequest writes what has become of the pull request of a finished job, unless the
// job has another attempt than rec meanwhile: then it returns [jobs.ErrFenced]. A result that is accepted is
// delivered as soon as its pull request is open.
func SetPullRequest(ctx context.Context, q *queue.Queue, rec jobs.Record, pr jobs.PullRequest) error {
	_, err := change(ctx, q, rec.ID, func(now *jobs.Record) error {
		if now.State != jobs.Finished || now.Epoch != rec.Epoch {
			return jobs.ErrFenced
		}
		now.PullRequest = &pr
		deliver(now)
		return nil
	})
	return err
}

// deliver marks an accepted result as delivered whose pull request is open.
func deliver(now *jobs.Record) {
	if now.PullRequest.State == jobs.PullOpen && !now.PullDue() && now.Reviewed() == jobs.Accepted {
		review := *now.Review
		review.State = jobs.Delivered
		now.Review = &review
	}
}

// Raise has a job be allowed to spend more that has finished or is parked because a budget is
// spent, unless it has another attempt than rec meanwhile: then it returns [jobs.ErrFenced].
func Raise(ctx context.Context, q *queue.Queue, rec jobs.Record, more jobs.Allowance) (jobs.Record, error) {
	return change(ctx, q, rec.ID, func(now *jobs.Record) error {
		if now.State != jobs.Finished && !jobs.OnBudget(*now) || now.Epoch != rec.Epoch {
			return jobs.ErrFenced
		}
		now.Raised = jobs.Allowance{USD: max(now.Raised.USD, more.USD), Tokens: max(now.Raised.Tokens, more.Tokens)}
		return nil
	})
}

// change has a function change a record, writes it if it has not changed meanwhile, and returns it.
// Otherwise it begins anew.
func change(ctx context.Context, q *queue.Queue, id string, with func(*jobs.Record) error) (jobs.Record, error) {
	conn := q.Questions().Conn
	for {
		m, err := conn.Last(ctx, records, subject.Key(subject.Jobs, "*."+id))
		switch {
		case err == nil && m.Header.Get(subject.PurgedHeader) != "":
			err = jobs.ErrPurged
		case err == nil && m.Gone():
			err = jobs.ErrNotFound
		}
		var rec jobs.Record
		if err == nil {
			err = json.Unmarshal(m.Data, &rec)
		}
		if err == nil && rec.Purging {
			err = jobs.ErrPurged
		}
		if err == nil {
			err = with(&rec)
		}
		if err == nil {
			err = put(ctx, conn, m, rec)
		}
		switch {
		case err == nil:
			return rec, nil
		case !errors.Is(err, wire.ErrConflict):
			return rec, fmt.Errorf("job %s: %w", id, err)
		}
	}
}

var records = subject.KVStream(subject.Jobs)

// put writes what has changed of a record, if anything has. It expires when it would have without, and keeps
// what a newer release may have written.
func put(ctx context.Context, conn *wire.Conn, m wire.Message, rec jobs.Record) error {
	var all, changed map[string]json.RawMessage
	data, err := json.Marshal(rec)
	if err == nil {
		err = errors.Join(json.Unmarshal(data, &changed), json.Unmarshal(m.Data, &all))
	}
	if err != nil {
		return err
	}
	same := true
	for _, name := range fields {
		same = same && bytes.Equal(all[name], changed[name])
		if delete(all, name); changed[name] != nil {
			all[name] = changed[name]
		}
	}
	if same {
		return nil
	}
	if data, err = json.Marshal(all); err != nil {
		return err
	}
	w := wire.Write{Stream: records, Subject: m.Subject, Data: data, Expect: m.Seq}
	if seconds, err := strconv.ParseInt(m.Header.Get("Nats-TTL"), 10, 64); err == nil {
		w.TTL = max(time.Second, time.Duration(seconds)*time.Second-time.Since(m.Time))
	}
	_, err = conn.Put(ctx, w)
	return err
}
