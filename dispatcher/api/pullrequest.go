package api

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/jobs/amend"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/responder"
)

// pullRequestHandler has the leader open a pull request of the branch that a job has delivered.
func pullRequestHandler(cfg Config) responder.Handler {
	return handle(operation.PullRequest, func(ctx context.Context, _ caller, r operation.PullRequestRequest) (jobs.Record, error) {
		rec, err := cfg.Queue.Get(ctx, r.ID)
		if err != nil {
			return rec, err
		}
		if err := openable(ctx, cfg, rec, r.Epoch); err != nil {
			return rec, err
		}
		return amend.WantPullRequest(ctx, cfg.Queue, rec)
	})
}

// openable reports why a job can have no pull request. Seen is the epoch of the result that was
// looked at; zero: any.
func openable(ctx context.Context, cfg Config, rec jobs.Record, seen uint64) error {
	result, err := cfg.Dispatcher.Result(ctx, rec)
	switch {
	case err != nil:
		return err
	case seen != 0 && seen != rec.Epoch:
		return &jobs.CodedError{Code: jobs.CodeExists, Message: fmt.Sprintf("job %s has another result than the one that was looked at: look at it anew", rec.ID)}
	case rec.Outcome != jobs.Success:
		return cannotOpen(rec, fmt.Sprintf("ended in %s: only a successful job has a pull request", rec.Outcome))
	case result.Branch == "":
		return cannotOpen(rec, "has delivered no branch: submit it with deliver mode branch, or make its branch yourself")
	case cfg.PullRequests == nil:
		return cannotOpen(rec, "this pool opens no pull requests: penstock serve does, with the settings of forges")
	}
	job, err := cfg.Queue.Job(ctx, rec.ID)
	if err == nil {
		err = cfg.PullRequests(job)
	}
	if err != nil {
		return cannotOpen(rec, err.Error())
	}
	return nil
}

func cannotOpen(rec jobs.Record, why string) error {
	return &jobs.InvalidError{What: "request", Fields: []jobs.FieldError{{Field: "id", Reason: "job " + rec.ID + ": " + why}}}
}
