package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

const (
	deliverLimit = 5 * time.Minute // of one job's delivery, all tries together
	deliverTries = 3
)

// deliver makes the branch of a job that asked for one. The result is stored
// already: a delivery that fails costs the branch and nothing else.
func (a *attempt) deliver(ctx context.Context, space *workspace.Workspace, change workspace.Change) error {
	if a.job.Deliver.Mode != jobs.DeliverBranch {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deliverLimit, fmt.Errorf("it took longer than %v", deliverLimit))
	defer cancel()
	d := a.delivery()
	var err error
	if d.Replaces, err = a.delivered(ctx, d.Branch); err != nil {
		return verdict.Failed(jobs.StoreFailed, "read what earlier attempts delivered", err)
	}
	got, err := a.try(ctx, space, change, d)
	if err != nil {
		return undelivered(err)
	}
	if got.Commit == "" {
		a.events.put(event.Make(event.Notice{Text: "no branch was made: the agent changed nothing"}))
		return nil
	}
	a.result.Branch = d.Branch
	a.events.put(event.Make(event.BranchDelivered{Repo: got.Repo, Branch: d.Branch, Commit: got.Commit, Replaced: got.Replaced}))
	return nil
}

func (a *attempt) delivery() workspace.Delivery {
	d := workspace.Delivery{
		Repo: a.job.Repo.URL, Branch: a.job.DeliveryBranch(a.rec.ID),
		Message: a.clean(a.job.Title()), At: a.rec.Submitted, Author: a.cfg.CommitAuthor,
	}
	if a.drafted.title != "" {
		d.Message = a.drafted.String()
	}
	if d.Message == "" {
		d.Message = "Changes by job " + a.rec.ID
	}
	if !a.cfg.CommitPlain {
		d.Trailers = []string{"Penstock-Job: " + a.rec.ID, "Penstock-Session: " + a.rec.Session}
	}
	if a.rec.Claimed != nil {
		d.At = *a.rec.Claimed
	}
	d.Permit = func(ctx context.Context, commit string) (time.Time, error) { return a.permit(ctx, d.Branch, commit) }
	return d
}

// permit stores what is about to be done, and then proves that the lease is
// still ours. In this order: whoever claims the job after us finds it.
func (a *attempt) permit(ctx context.Context, branch, commit string) (time.Time, error) {
	err := a.cfg.Store.PutDelivery(ctx, a.rec.ID, a.claim.Epoch(), event.BranchDelivered{Branch: branch, Commit: commit})
	if err != nil {
		return time.Time{}, verdict.Failed(jobs.StoreFailed, "note the delivery", err)
	}
	return a.claim.Assert(ctx)
}

// delivered lists the commits that lost attempts of this job may have put on
// the branch. Only what an attempt before this one has noted of this very branch
// counts: a commit in the list may be replaced.
func (a *attempt) delivered(ctx context.Context, branch string) ([]string, error) {
	if a.rec.Attempt < 2 {
		return nil, nil
	}
	noted, err := a.cfg.Store.Deliveries(ctx, a.rec.ID)
	if err != nil {
		return nil, err
	}
	var commits []string
	for epoch, d := range noted {
		if epoch < a.claim.Epoch() && d.Branch == branch {
			commits = append(commits, d.Commit)
		}
	}
	return commits, nil
}

// try delivers, more than once where the repository may just be away. To run
// the agent again for that would cost more, and help no better.
func (a *attempt) try(ctx context.Context, space *workspace.Workspace, change workspace.Change, d workspace.Delivery) (got workspace.Delivered, err error) {
	for n := range deliverTries {
		got, err = space.Deliver(ctx, change, d)
		if err == nil || ctx.Err() != nil || final(err) {
			return got, err
		}
		a.log.Warn("could not deliver", "try", n+1, "err", err)
		if n+1 < deliverTries && !pause(ctx, time.Second<<(2*n)) {
			return got, context.Cause(ctx)
		}
	}
	return got, err
}

// final reports whether trying again cannot end otherwise.
func final(err error) bool {
	_, there := errors.AsType[*workspace.BranchError](err)
	_, step := errors.AsType[*verdict.StepError](err)
	return there || step || errors.Is(err, jobs.ErrFenced) || errors.Is(err, jobs.ErrCancelled)
}

// undelivered gives a failed delivery its reason. What the same error would
// mean in another step does not count: the agent's work is done and stored.
func undelivered(err error) error {
	if there, ok := errors.AsType[*workspace.BranchError](err); ok {
		return verdict.Ended(jobs.BranchExists, "%v", there)
	}
	if final(err) {
		return err
	}
	return verdict.Ended(jobs.DeliveryFailed, "deliver the result: %v", err)
}
