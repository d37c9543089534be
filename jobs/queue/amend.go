package queue

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// WantPullRequest has the record of a finished job say that a pull request is wanted of its
// result, or wanted again where the forge has refused it. One that is open stays. A result that is
// accepted is delivered as soon as its pull request is open. The error is
// [jobs.ErrFenced] where the job has another attempt than rec meanwhile.
func WantPullRequest(ctx context.Context, q *Queue, rec jobs.Record) (jobs.Record, error) {
	return amend(ctx, q, rec, func(now *jobs.Record) bool {
		switch {
		case delivered(now):
			return true
		case now.PullRequest != nil && (now.PullDue() || now.PullRequest.State == jobs.PullOpen):
			return false
		}
		now.PullRequest = &jobs.PullRequest{State: jobs.PullWanted}
		return true
	})
}

// SetPullRequest writes what has become of the pull request of a finished job, unless the
// job has another attempt than rec meanwhile: then it returns [jobs.ErrFenced].
func SetPullRequest(ctx context.Context, q *Queue, rec jobs.Record, pr jobs.PullRequest) error {
	_, err := amend(ctx, q, rec, func(now *jobs.Record) bool {
		now.PullRequest = &pr
		delivered(now)
		return true
	})
	return err
}

// delivered reports whether an accepted result has its pull request open, and marks it as delivered
// then.
func delivered(now *jobs.Record) bool {
	if now.PullRequest == nil || now.PullRequest.State != jobs.PullOpen || now.PullDue() || now.Reviewed() != jobs.Accepted {
		return false
	}
	review := *now.Review
	review.State = jobs.Delivered
	now.Review = &review
	return true
}

// Raise has a job be allowed to spend more that has finished or is parked because a budget is
// spent, unless it has another attempt than rec meanwhile: then it returns [jobs.ErrFenced].
func Raise(ctx context.Context, q *Queue, rec jobs.Record, more jobs.Allowance) (jobs.Record, error) {
	return amendIf(ctx, q, rec, func(now jobs.Record) bool { return finished(now) || jobs.OnBudget(now) }, func(now *jobs.Record) bool {
		now.Raised = jobs.Allowance{USD: max(now.Raised.USD, more.USD), Tokens: max(now.Raised.Tokens, more.Tokens)}
		return true
	})
}

func finished(rec jobs.Record) bool { return rec.State == jobs.Finished }

// amend is amendIf for finished jobs.
func amend(ctx context.Context, q *Queue, rec jobs.Record, change func(*jobs.Record) bool) (jobs.Record, error) {
	return amendIf(ctx, q, rec, finished, change)
}

// amendIf changes what stands beside the state of a job that fits, if it has the attempt that rec
// has. Nothing is written where change returns false.
func amendIf(ctx context.Context, q *Queue, rec jobs.Record, fits func(jobs.Record) bool, change func(*jobs.Record) bool) (jobs.Record, error) {
	for {
		e, err := q.Read(ctx, rec.ID)
		if err == nil && (!fits(e.Record) || e.Epoch != rec.Epoch) {
			err = fmt.Errorf("job %s: %w", rec.ID, jobs.ErrFenced)
		}
		if err != nil {
			return rec, err
		}
		if !change(&e.Record) {
			return e.Record, nil
		}
		if e, err = q.put(ctx, e); !isConflict(err) {
			return e.Record, err
		}
	}
}
