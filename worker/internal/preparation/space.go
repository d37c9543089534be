package preparation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/policy"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Workspace makes the workspace of a plan.
func (p *Preparation) Workspace(ctx context.Context, plan *Plan) (*workspace.Workspace, error) {
	began := time.Now()
	features, err := plan.Backend.Check(ctx)
	if err != nil {
		return nil, verdict.Failed(jobs.SandboxMissing, "choose a jail", p.cfg.Diagnosed(err))
	}
	r := workspace.Request{
		ID: p.cfg.Name, Repo: plan.Job.Repo, Isolation: plan.Job.Isolation, Plain: !slices.Contains(features, sandbox.FeatureLayers),
		Unjailed: plan.Backend.Name() == "none", Title: plan.Job.Title(), Session: p.cfg.Record.Session, Batch: plan.Job.Batch,
		Progress: func(w event.WorkspaceProgress) { p.cfg.Tell(event.Make(event.WorkspaceProgress(w))) },
	}
	if s := plan.Salvage; s != nil && s.Job == p.cfg.Record.ID {
		r.Again = p.cfg.Record.ID + "." + strconv.FormatUint(s.Epoch, 10)
	}
	space, err := p.cfg.Spaces.Prepare(ctx, r)
	p.cfg.Took("provision", began)
	if err != nil {
		return nil, verdict.Failed(jobs.WorkspaceFailed, "prepare workspace", err)
	}
	p.cfg.Result.SetBase(space.Base())
	// What "auto" means is known only now.
	if err := p.cfg.Refusals.Deny(p.cfg.Confine.Policy.PermitsJob(policy.Request{Jail: jailpolicy.Request{Backend: "auto"}, Workspace: string(space.Strategy())})); err != nil {
		return nil, errors.Join(err, space.Close())
	}
	p.cfg.Tell(event.Make(p.ready(space)))
	return space, nil
}

func (p *Preparation) ready(space *workspace.Workspace) event.WorkspaceReady {
	r := event.WorkspaceReady{
		Base: space.Base(), Isolation: p.cfg.Job.Isolation, Strategy: string(space.Strategy()), Seconds: p.cfg.Result.Now().Durations.Provision,
	}
	r.OriginalDir, r.OriginalBranch = space.Origin()
	if wt, ok := space.Worktree(); ok {
		r.Name, r.Path, r.Branch, r.Head, r.Reused = wt.Name, wt.Path, wt.Branch, wt.Head, space.Reused()
	}
	return r
}

// Restore puts the plan's salvage into the workspace, and tells the session so. It returns
// what the agent must know of its workspace; "" if that is new.
func (p *Preparation) Restore(ctx context.Context, plan *Plan, space *workspace.Workspace) (notice string, err error) {
	s := plan.Salvage
	if s == nil {
		return "", nil
	}
	if space.Reused() {
		return p.inherits(plan, space, "is the one of an earlier attempt of this job, as that attempt, or a person since, has left it"), nil
	}
	if s.Patch == nil && s.Bundle == nil {
		return "", nil // a capsule of an attempt that had changed nothing
	}
	if err := p.cfg.Salvages.Restore(ctx, space, s); err != nil {
		return "", err
	}
	whose := "attempt of this job"
	switch {
	case s.Job != p.cfg.Record.ID:
		whose = "job, " + s.Job + ","
	case s.Epoch == 0:
		whose = "job, " + p.cfg.Job.Fork + ","
	}
	return p.inherits(plan, space, "begins from a salvage: the changes of an earlier "+whose+" were restored to a fresh checkout"), nil
}

// inherits tells users that the workspace differs from the base, and returns what its
// agent is told. what describes the workspace.
func (p *Preparation) inherits(plan *Plan, space *workspace.Workspace, what string) string {
	at := sandbox.WorkspacePath
	if plan.Backend.Name() == "none" {
		at = space.Dir()
	}
	notice := fmt.Sprintf("About your workspace: it %s. It is at %s; paths in older notes or messages that begin elsewhere "+
		"mean the same files below there. What you remember of the files may be out of date: read them again before you "+
		"change them, and look at git status and git log first. Nothing outside of the workspace is yours, and what you "+
		"change in it reaches other people only after you have ended.", what, at)
	s := plan.Salvage
	p.cfg.Tell(event.Make(event.Notice{Text: notice, SalvageEpoch: s.Epoch, Files: &s.Files, Commits: &s.Commits}))
	return notice
}
