package api

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
)

// pullRequest has the leader open a pull request of the branch that a job has delivered.
func (s *Server) pullRequest(ctx context.Context, _ caller, r operation.PullRequestRequest) (jobs.Record, error) {
	rec, err := s.cfg.Queue.Get(ctx, r.ID)
	switch {
	case err != nil:
		return rec, err
	case rec.State != jobs.Finished:
		return rec, fmt.Errorf("pull request of job %s: %w: it is %s", rec.ID, jobs.ErrNotFinished, rec.State)
	case r.Epoch != 0 && r.Epoch != rec.Epoch:
		return rec, &jobs.CodedError{Code: jobs.CodeExists, Message: fmt.Sprintf("job %s has another result than the one that was looked at: look at it anew", rec.ID)}
	case rec.Outcome != jobs.Success:
		return rec, cannotOpen(rec, fmt.Sprintf("ended in %s: only a successful job has a pull request", rec.Outcome))
	}
	result, err := s.cfg.Dispatcher.Result(ctx, rec)
	if err != nil {
		return rec, err
	}
	if result.Branch == "" {
		return rec, cannotOpen(rec, "has delivered no branch: submit it with deliver mode branch, or make its branch yourself")
	}
	job, err := s.cfg.Queue.Job(ctx, rec.ID)
	if err != nil {
		return rec, err
	}
	if err := s.cfg.Dispatcher.OpensPullRequest(job); err != nil {
		return rec, cannotOpen(rec, err.Error())
	}
	return queue.WantPullRequest(ctx, s.cfg.Queue, rec)
}

func cannotOpen(rec jobs.Record, why string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "id", Reason: "job " + rec.ID + ": " + why}}}
}
