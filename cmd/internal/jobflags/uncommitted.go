package jobflags

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
	"github.com/penstock-run/penstock/worker/workspace"
)

// AddUncommitted is for commands whose jobs are submitted now.
func (f *Flags) AddUncommitted(flags *pflag.FlagSet) {
	flags.BoolVar(&f.Uncommitted, "include-uncommitted", false, "begin from the work tree as it is, including uncommitted files that are not ignored")
}

// Base says what of the user's work tree a job does not get, or lets it
// begin from all of it.
func Base(ctx context.Context, shell cli.Shell, job *jobs.Job, flags Flags) error {
	if !flags.Uncommitted {
		TellLeftOut(ctx, shell, *job)
		return nil
	}
	base, err := Snapshot(ctx, shell, *job)
	job.Repo.Commit = base.Commit
	return err
}

// lookTime bounds how long a submission waits for what is only a hint.
const lookTime = 5 * time.Second

// TellLeftOut says how many files of a work tree are not committed, where a
// job begins from its HEAD. What cannot be read here is the worker's to refuse.
func TellLeftOut(ctx context.Context, shell cli.Shell, job jobs.Job) {
	path, local := checkout.Local(job.Repo.URL)
	if !local || job.Repo.Ref != "" || !Pinned(job) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	tree, err := checkout.Open(ctx, path, os.Environ())
	if err != nil {
		return
	}
	found, err := tree.Uncommitted(ctx)
	changed, untracked := len(found.Changed), len(found.Untracked)+len(found.Nested)
	if err != nil || changed+untracked == 0 {
		return
	}
	shell.Err.Printf("penstock: %d changed and %d untracked files of %s are not committed, so they are left out; --include-uncommitted includes them\n",
		changed, untracked, tree.Top())
}

// Snapshot makes a commit of a work tree as it is, for jobs to begin from. It
// is kept where workers of this data directory keep what they fetched.
func Snapshot(ctx context.Context, shell cli.Shell, job jobs.Job) (results.Base, error) {
	base := results.Base{Repo: job.Repo.URL}
	path, err := snapshotable(shell, job)
	if err != nil {
		return base, err
	}
	tree, err := checkout.Open(ctx, path, os.Environ())
	if err != nil {
		return base, cli.Usage("", "--include-uncommitted: %w", err)
	}
	spaces, err := workspace.Open(ctx, workerparts.Workspaces(shell.Config, nil))
	if err != nil {
		return base, err
	}
	snap, err := tree.Snapshot(ctx, func(head, commit string, pack io.Reader) error {
		return spaces.Bring(ctx, job.Repo.URL, head, commit, pack)
	})
	if err != nil {
		return base, cli.Usage("commit or remove these files, or leave --include-uncommitted out", "--include-uncommitted: %w", err)
	}
	base.Commit, base.Uncommitted = snap.Commit, snap.Files
	if snap.Files == 0 {
		shell.Err.Printf("penstock: %s has no uncommitted files\n", tree.Top())
		return base, nil
	}
	shell.Err.Printf("penstock: the job begins from %s with %d uncommitted files, as commit %s, which is in none of your repositories\n", console.ShortID(snap.Head), snap.Files, console.ShortID(snap.Commit))
	if len(snap.Filtered) > 0 {
		shell.Err.Printf("penstock: git filters did not run; these files are used as they are on disk:\n")
		shell.Err.Some(snap.Filtered)
	}
	if len(snap.Nested) > 0 {
		shell.Err.Printf("penstock: these are separate repositories, and are left out:\n")
		shell.Err.Some(snap.Nested)
	}
	return base, nil
}

// snapshotable returns the path that a snapshot is made of, or why none can be.
func snapshotable(shell cli.Shell, job jobs.Job) (string, error) {
	path, local := checkout.Local(job.Repo.URL)
	refuse := func(hint, why string) (string, error) {
		return "", cli.Usage(hint, "--include-uncommitted: %s", why)
	}
	switch {
	case !local:
		return refuse("commit there, or name a path with --repo", "a repository on another host has no work tree here")
	case job.Repo.Ref != "" || job.Repo.Commit != "":
		return refuse("leave --ref out", "uncommitted files belong to the work tree's HEAD, not to another ref")
	case job.Isolation == jobs.IsolationNone:
		return refuse("leave it out", "with --isolation none the agent works in the directory as it is")
	case !Pinned(job):
		return refuse("", "a job that continues another one begins from the same commit")
	case job.Deliver.OnBranch():
		return refuse("commit first, or use penstock job apply", "a branch would publish uncommitted files")
	case shell.Config.Server != "":
		return refuse("commit first, and let the workers fetch that", "the workers of --server cannot read this data directory, where the files are kept")
	}
	return path, nil
}

// Pinned reports whether a job begins from what a name leads to. One that goes
// on from another job has that one's base, and with isolation none there is
// nothing to check out.
func Pinned(j jobs.Job) bool {
	return j.Repo.URL != "" && j.Repo.Commit == "" && j.Isolation != jobs.IsolationNone && j.Session == "" && j.Fork == "" && j.FromSalvage == ""
}
