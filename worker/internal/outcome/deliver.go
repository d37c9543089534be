package outcome

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/pause"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

const (
	deliverLimit = 5 * time.Minute // of one job's delivery, all tries together
	deliverTries = 3
)

// Deliver makes the branch of a job that asks for one, or for a pull request of it. The result is already stored: a
// failed delivery costs only the branch.
func (o *Outcome) Deliver(ctx context.Context, change workspace.Change) error {
	if !o.cfg.Job.Deliver.OnBranch() {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deliverLimit, fmt.Errorf("it took longer than %v", deliverLimit))
	defer cancel()
	d := o.delivery()
	var err error
	if d.Replaces, err = o.delivered(ctx, d.Branch); err != nil {
		return verdict.Failed(jobs.StoreFailed, "read what earlier attempts delivered", err)
	}
	got, err := o.try(ctx, change, d)
	if err != nil {
		return undelivered(err)
	}
	if got.Commit == "" {
		o.cfg.Tell(event.Make(event.Notice{Text: "no branch was made: the agent changed nothing"}))
		return nil
	}
	o.commit = got.Commit
	o.Result.change(func(r *jobs.Result) { r.Branch = d.Branch })
	o.cfg.Tell(event.Make(event.BranchDelivered{Repo: got.Repo, Branch: d.Branch, Commit: got.Commit, Replaced: got.Replaced}))
	return nil
}

func (o *Outcome) delivery() workspace.Delivery {
	d := workspace.Delivery{
		Repo: o.cfg.Job.Repo.URL, Branch: o.cfg.Job.DeliveryBranch(o.cfg.Record.ID),
		Message: o.clean(o.cfg.Job.Title()), At: o.cfg.Record.Submitted, Author: o.cfg.CommitAuthor,
	}
	if o.draft.Title != "" {
		d.Message = o.draft.String()
	}
	if d.Message == "" {
		d.Message = "Changes by job " + o.cfg.Record.ID
	}
	if !o.cfg.CommitPlain {
		d.Trailers = []string{"Penstock-Job: " + o.cfg.Record.ID, "Penstock-Session: " + o.cfg.Record.Session}
	}
	if o.cfg.Record.Claimed != nil {
		d.At = *o.cfg.Record.Claimed
	}
	d.Permit = func(ctx context.Context, commit string) (time.Time, error) { return o.Permit(ctx, d.Branch, commit) }
	return d
}

// Permit stores the intended delivery, and then proves that the lease is still ours.
// In this order the next claimer of the job finds the delivery.
func (o *Outcome) Permit(ctx context.Context, branch, commit string) (time.Time, error) {
	err := o.cfg.Store.PutDelivery(ctx, o.cfg.Record.ID, o.cfg.Epoch, event.BranchDelivered{Branch: branch, Commit: commit})
	if err != nil {
		return time.Time{}, verdict.Failed(jobs.StoreFailed, "note the delivery", err)
	}
	return o.cfg.Assert(ctx)
}

// delivered lists the commits that lost attempts of this job may have put on the
// branch. Only notes of earlier attempts about exactly this branch count: a commit in
// the list may be replaced.
func (o *Outcome) delivered(ctx context.Context, branch string) ([]string, error) {
	if o.cfg.Record.Attempt < 2 {
		return nil, nil
	}
	noted, err := o.cfg.Store.Deliveries(ctx, o.cfg.Record.ID)
	if err != nil {
		return nil, err
	}
	var commits []string
	for epoch, d := range noted {
		if epoch < o.cfg.Epoch && d.Branch == branch {
			commits = append(commits, d.Commit)
		}
	}
	return commits, nil
}

// try delivers, several times if the repository may just be unavailable. To run the
// agent again for that would cost more, and help no better.
func (o *Outcome) try(ctx context.Context, change workspace.Change, d workspace.Delivery) (got workspace.Delivered, err error) {
	for n := range deliverTries {
		got, err = change.Deliver(ctx, d)
		if err == nil || ctx.Err() != nil || final(err) {
			return got, err
		}
		o.cfg.Log.Warn("could not deliver", "try", n+1, "err", err)
		if n+1 < deliverTries && !pause.For(ctx, time.Second<<(2*n)) {
			return got, context.Cause(ctx)
		}
	}
	return got, err
}

// final reports whether another try would end the same way.
func final(err error) bool {
	_, there := errors.AsType[*workspace.BranchError](err)
	_, step := errors.AsType[*verdict.StepError](err)
	return there || step || errors.Is(err, jobs.ErrFenced) || errors.Is(err, jobs.ErrCancelled)
}

// undelivered gives a failed delivery its reason. The usual reason of the error does
// not apply: the agent's work is done and stored.
func undelivered(err error) error {
	if there, ok := errors.AsType[*workspace.BranchError](err); ok {
		return verdict.Ended(jobs.BranchExists, "%v", there)
	}
	if final(err) {
		return err
	}
	return verdict.Ended(jobs.DeliveryFailed, "deliver the result: %v", err)
}
