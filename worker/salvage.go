package worker

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/workspace"
)

// The names of an attempt's artifacts: its patch, its commits as a bundle of git, and
// what the agent has written about its change.
const (
	PatchName  = outcome.PatchName
	BundleName = outcome.BundleName
	DraftName  = jobs.DraftArtifact
)

// vacate ends the attempt's hold on its workspace, which goes if what is in it
// is stored, and stays if not.
func (a *attempt) vacate(ctx context.Context, space *workspace.Workspace, v jobs.Ended) error {
	var err error
	if v.Outcome != jobs.Success || space.Unsaved() {
		err = a.of.out.Salvage(ctx, space, v.Reason)
	}
	if a.runs.parked == nil { // its capsule is of before it was told to end
		a.seal(ctx, space, v)
	}
	if a.of.out.Stored() || space.Reused() {
		space.Keep()
	}
	return errors.Join(err, space.Close())
}

// seal stores the capsule of an attempt that is over, with what is stored of
// its work already.
func (a *attempt) seal(ctx context.Context, space *workspace.Workspace, v jobs.Ended) {
	work, complete := a.of.out.Work(space, v)
	if !complete {
		return
	}
	at := a.runs.at
	at.Conversation = a.runs.resume
	a.of.conversation.Store(context.WithoutCancel(ctx), at, v.Reason, func(context.Context) (*jobs.Salvage, error) { return work, nil })
}

// Salvage returns what a sweep does with the workspaces of workers that died:
// it stores their work, under the attempt's own epoch, and tells the session.
// Of cfg it needs the queue, the log, the store, and the name of who does it.
func Salvage(cfg Config) func(context.Context, *workspace.Workspace) error {
	return func(ctx context.Context, space *workspace.Workspace) error {
		ctx, cancel := context.WithTimeout(ctx, outcome.CollectLimit)
		defer cancel()
		job, epoch, err := outcome.AttemptOf(space.ID())
		if err != nil {
			return err
		}
		if _, err := cfg.Queue.Get(ctx, job); errors.Is(err, jobs.ErrPurged) {
			return nil // and nothing of it is to be stored again
		}
		s, err := outcome.Rescue(ctx, cfg.Store, space, jobs.Salvage{Job: job, Epoch: epoch, Why: jobs.WorkerLost, Worker: cfg.Name})
		if err != nil || s.Patch == nil {
			return err
		}
		return tell(ctx, cfg, s)
	}
}

// tell appends a sweep's salvage to the session. The job may have gone on
// elsewhere meanwhile, which is not disturbed by it.
func tell(ctx context.Context, cfg Config, s jobs.Salvage) error {
	rec, err := cfg.Queue.Get(ctx, s.Job)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil // it was kept for less time than its workspace
	}
	if err != nil {
		return err
	}
	_, err = cfg.Log.Append(ctx, session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Trace: rec.Span(rec.Attempt)}, event.New(event.SalvageStored(s)))
	return err
}

// Stored returns what a sweep asks before it removes a worktree with changes of
// an attempt: whether the store still has them.
func Stored(store *artifact.Store) func(context.Context, string, workspace.Receipt) (bool, error) {
	return func(ctx context.Context, attempt string, r workspace.Receipt) (bool, error) {
		return outcome.Stored(ctx, store, attempt, r)
	}
}
