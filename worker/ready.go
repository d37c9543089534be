package worker

import (
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/workspace"
)

// workspaceReady tells those who watch a session where its files are.
type workspaceReady struct {
	Base      string             `json:"base_commit,omitempty"`
	Isolation jobs.Isolation     `json:"isolation"`
	Strategy  workspace.Strategy `json:"strategy,omitempty"`
	Seconds   float64            `json:"seconds"`

	// Where the user is, if the repository is a path: what the job named, and
	// the branch that is checked out there.
	OriginalDir    string `json:"original_dir,omitempty"`
	OriginalBranch string `json:"original_branch,omitempty"`

	// Of a worktree of the user's repository.
	Name   string `json:"name,omitempty"`
	Path   string `json:"path,omitempty"`
	Branch string `json:"branch,omitempty"`
	Head   string `json:"head_commit,omitempty"`
	Reused bool   `json:"reused,omitempty"`
}

func (a *attempt) ready(space *workspace.Workspace) workspaceReady {
	r := workspaceReady{
		Base: space.Base(), Isolation: a.job.Isolation, Strategy: space.Strategy(), Seconds: a.result.Durations.Provision,
	}
	r.OriginalDir, r.OriginalBranch = space.Origin()
	if wt, ok := space.Worktree(); ok {
		r.Name, r.Path, r.Branch, r.Head, r.Reused = wt.Name, wt.Path, wt.Branch, wt.Head, space.Reused()
	}
	return r
}

// inherits tells agent and watchers that the workspace is not as the base has
// it. what says what it is instead.
func (a *attempt) inherits(space *workspace.Workspace, what string, s *jobs.Salvage) {
	at := sandbox.WorkspacePath
	if a.result.Backend == "none" {
		at = space.Dir()
	}
	a.notice = fmt.Sprintf("About your workspace: it %s. It is at %s; paths in older notes or messages that begin elsewhere "+
		"mean the same files below there. What you remember of the files may be out of date: read them again before you "+
		"change them, and look at git status and git log first. Nothing outside of the workspace is yours, and what you "+
		"change in it reaches nobody else before you have ended.", what, at)
	a.events.put(jobs.NewEvent(jobs.Notice, inherited{Text: a.notice, Epoch: s.Epoch, Files: s.Files, Commits: s.Commits}))
}

type inherited struct {
	Text    string `json:"text"`
	Epoch   uint64 `json:"salvage_epoch"`
	Files   int    `json:"files_changed"`
	Commits int    `json:"commits"`
}
