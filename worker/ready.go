package worker

import (
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/workspace"
)

func (a *attempt) ready(space *workspace.Workspace) event.WorkspaceReady {
	r := event.WorkspaceReady{
		Base: space.Base(), Isolation: a.job.Isolation, Strategy: string(space.Strategy()), Seconds: a.out.Result.Now().Durations.Provision,
	}
	r.OriginalDir, r.OriginalBranch = space.Origin()
	if wt, ok := space.Worktree(); ok {
		r.Name, r.Path, r.Branch, r.Head, r.Reused = wt.Name, wt.Path, wt.Branch, wt.Head, space.Reused()
	}
	return r
}

// inherits reports to the agent and to users that the workspace differs from the base.
// what describes it.
func (a *attempt) inherits(space *workspace.Workspace, what string, s *jobs.Salvage) {
	at := sandbox.WorkspacePath
	if a.out.Result.Now().Backend == "none" {
		at = space.Dir()
	}
	a.notice = fmt.Sprintf("About your workspace: it %s. It is at %s; paths in older notes or messages that begin elsewhere "+
		"mean the same files below there. What you remember of the files may be out of date: read them again before you "+
		"change them, and look at git status and git log first. Nothing outside of the workspace is yours, and what you "+
		"change in it reaches other people only after you have ended.", what, at)
	a.events.Put(event.Make(event.Notice{Text: a.notice, SalvageEpoch: s.Epoch, Files: &s.Files, Commits: &s.Commits}))
}
