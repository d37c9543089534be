package queue

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/record"
)

// WantPullRequest has the record of a finished job say that a pull request is wanted of its
// result, or wanted again where the forge has refused it. One that is open stays. The error is
// [jobs.ErrFenced] where the job has another attempt than rec meanwhile.
func WantPullRequest(ctx context.Context, q *Queue, rec jobs.Record) (jobs.Record, error) {
	for {
		e, err := current(ctx, q, rec)
		if err != nil {
			return rec, err
		}
		if e.PullRequest != nil && (e.PullDue() || e.PullRequest.State == jobs.PullOpen) {
			return e.Record, nil
		}
		e.PullRequest = &jobs.PullRequest{State: jobs.PullWanted}
		if e, err = q.put(ctx, e); !isConflict(err) {
			return e.Record, err
		}
	}
}

// SetPullRequest writes what has become of the pull request of a finished job, unless the
// job has another attempt than rec meanwhile: then it returns [jobs.ErrFenced].
func SetPullRequest(ctx context.Context, q *Queue, rec jobs.Record, pr jobs.PullRequest) error {
	for {
		e, err := current(ctx, q, rec)
		if err != nil {
			return err
		}
		e.PullRequest = &pr
		if _, err = q.put(ctx, e); !isConflict(err) {
			return err
		}
	}
}

// current reads the entry of a finished job, if it has the attempt that rec has.
func current(ctx context.Context, q *Queue, rec jobs.Record) (record.Entry, error) {
	e, err := q.Read(ctx, rec.ID)
	if err == nil && (e.State != jobs.Finished || e.Epoch != rec.Epoch) {
		err = fmt.Errorf("pull request of job %s: %w", rec.ID, jobs.ErrFenced)
	}
	return e, err
}
