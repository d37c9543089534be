// Package worktreecmd is the command job worktree: results of jobs as worktrees of the
// user's own repository.
package worktreecmd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/scratch"
	"github.com/penstock-run/penstock/worker/worktree"
)

var view = cli.View[worktree.Worktree]{
	Header: []string{"NAME", "JOB", "BATCH", "BRANCH", "REFRESHED", "PATH"},
	Row: func(wt worktree.Worktree) []string {
		return []string{wt.Name, wt.Job, console.ShortID(wt.Batch), wt.Branch, wt.Refreshed.Local().Format(time.DateTime), wt.Path}
	},
	ID: func(wt worktree.Worktree) string { return wt.Path },
}

// open are those of the data directory.
func open(shell cli.Shell) (*worktree.Set, error) {
	return worktree.Open(workerparts.WorktreeRecords(shell.Config))
}

// New returns the command worktree.
func New(shell cli.Shell) *cobra.Command {
	var r worktree.Request
	cmd := &cobra.Command{
		Use: "worktree ID", Short: "Check out the result of a finished job as a worktree of your repository",
		Long: `Worktree makes a linked git worktree of your own repository, with the job's commits on
a branch, and prints its path. If the job already has one, it prints that. Files to
check before you work there are listed on standard error.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				return add(ctx, shell, p, rec, r)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.Repo, "repo", "", "your repository (default: the job's, if that is a path, else the one around the current directory)")
	flags.StringVar(&r.Name, "name", "", "name of the worktree (default: made from the job's title)")
	flags.StringVar(&r.Dir, "dir", "", "directory to create (default: .penstock/worktrees/NAME in the main work tree)")
	flags.StringVar(&r.Branch, "branch", "", "branch to create (default: penstock/job/NAME)")
	cmd.AddCommand(ls(shell), remove(shell))
	return cmd
}

func add(ctx context.Context, shell cli.Shell, p *pool.Pool, rec jobs.Record, r worktree.Request) (err error) {
	if rec.State != jobs.Finished {
		return cli.Fail(cli.ExitNotFound, "penstock wait "+rec.ID, "job %s is %s: it has no result yet", rec.ID, rec.State)
	}
	result, err := p.Client.Result(ctx, rec.ID)
	if err != nil {
		return err
	}
	if result.FilesChanged == 0 && result.Commits == 0 {
		return cli.Fail(cli.ExitNotFound, "", "job %s changed nothing", rec.ID)
	}
	if r.Repo == "" && filepath.IsAbs(rec.Repo) {
		r.Repo = rec.Repo
	}
	if r.Repo == "" {
		r.Repo, err = jobflags.RepositoryAround()
	} else {
		r.Repo, err = jobflags.Repository(r.Repo)
	}
	if err != nil {
		return err
	}
	r.Job, r.Session, r.Batch, r.Title, r.Base = rec.ID, rec.Session, rec.Batch, rec.Title, result.BaseCommit
	if r.Title == "" && rec.Item != rec.ID {
		r.Title = rec.Item
	}
	if rec.Finished != nil {
		r.Finished = *rec.Finished
	}
	dir, done, err := scratch.Dir("result")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	if r.Bundle, err = fetchTo(ctx, p, rec, worker.BundleName, dir); err == nil {
		r.Patch, err = fetchTo(ctx, p, rec, worker.PatchName, dir)
	}
	if err != nil {
		return err
	}
	trees, err := open(shell)
	if err != nil {
		return err
	}
	wt, look, err := trees.Add(ctx, r)
	if err != nil {
		return err
	}
	if len(look) > 0 {
		shell.Err.Printf("penstock: check these before you work there:\n")
	}
	for _, line := range look {
		shell.Err.Printf("  %s\n", line)
	}
	return view.One(shell.Out, *shell.Format, wt)
}

// fetchTo writes an artifact of a finished job to a file in dir, and returns
// its path; "" if the job has no such artifact.
func fetchTo(ctx context.Context, p *pool.Pool, rec jobs.Record, name, dir string) (path string, err error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	err = errors.Join(p.Artifact(ctx, rec.ID, rec.Epoch, name, f), f.Close())
	if errors.Is(err, jobs.ErrNotFound) {
		return "", nil // an empty file stays, in a directory that goes
	}
	return f.Name(), err
}

func ls(shell cli.Shell) *cobra.Command {
	var choice selection
	cmd := &cobra.Command{
		Use: "ls", Short: "List the worktrees of jobs and their results, the oldest first", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			choice.all = choice.batch == "" && choice.session == ""
			list, err := choose(shell, choice)
			return errors.Join(view.List(shell.Out, *shell.Format, list), err)
		},
	}
	cmd.Flags().StringVar(&choice.batch, "batch", "", "only those of this batch's jobs")
	cmd.Flags().StringVar(&choice.session, "session", "", "only those of this session")
	return cmd
}

// A selection names worktrees: by job, name or path, or by what they
// have in common.
type selection struct {
	names          []string
	batch, session string
	older          time.Duration
	all            bool
}

func remove(shell cli.Shell) *cobra.Command {
	var choice selection
	var force bool
	cmd := &cobra.Command{
		Use: "rm [ID|NAME|PATH…]", Short: "Remove worktrees of jobs and their results",
		Long: `Rm removes the directory and git's record of it. It keeps a worktree with uncommitted
changes, with commits that are nowhere else, with git's lock, or with a process working
in it, and removes the others. It keeps a branch whose commits are nowhere else.
--force removes all of that.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			choice.names = args
			if len(args) == 0 && choice.batch == "" && choice.session == "" && choice.older == 0 {
				return cli.Usage("name worktrees, or use --batch, --session or --older-than", "no worktree was named")
			}
			list, err := choose(shell, choice)
			if err != nil {
				return err
			}
			return removeAll(cmd.Context(), shell, list, force)
		},
	}
	cmd.Flags().StringVar(&choice.batch, "batch", "", "those of this batch's jobs")
	cmd.Flags().StringVar(&choice.session, "session", "", "those of this session")
	cmd.Flags().DurationVar(&choice.older, "older-than", 0, "those unused for this long (as in 720h)")
	cmd.Flags().BoolVar(&force, "force", false, "even if work is lost")
	return cmd
}

func choose(shell cli.Shell, choice selection) ([]worktree.Worktree, error) {
	trees, err := open(shell)
	if err != nil {
		return nil, err
	}
	list, err := trees.List()
	if err != nil {
		return nil, err
	}
	for _, name := range choice.names {
		if !slices.ContainsFunc(list, func(wt worktree.Worktree) bool { return named(wt, name) }) {
			return nil, cli.Fail(cli.ExitNotFound, "penstock job worktree ls lists them", "no worktree %q", name)
		}
	}
	return slices.DeleteFunc(list, func(wt worktree.Worktree) bool { return !choice.has(wt) }), nil
}

func (c selection) has(wt worktree.Worktree) bool {
	switch {
	case c.batch != "" && wt.Batch != c.batch, c.session != "" && wt.Session != c.session, c.older > 0 && time.Since(wt.Touched()) < c.older:
		return false
	case len(c.names) == 0:
		return c.all || c.batch != "" || c.session != "" || c.older > 0
	}
	return slices.ContainsFunc(c.names, func(name string) bool { return named(wt, name) })
}

func named(wt worktree.Worktree, name string) bool {
	if name == wt.Job || name == wt.Name || name == wt.Path {
		return true
	}
	abs, err := filepath.Abs(name)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	return err == nil && abs == wt.Path
}

// removeAll continues with the others if one is kept.
func removeAll(ctx context.Context, shell cli.Shell, list []worktree.Worktree, force bool) error {
	trees, err := open(shell)
	if err != nil {
		return err
	}
	var gone []worktree.Worktree
	var errs []error
	for _, wt := range list {
		left, err := trees.Remove(ctx, wt, force)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		gone = append(gone, wt)
		if left != "" {
			shell.Err.Printf("penstock: branch %s stays: its commits are nowhere else\n", left)
		}
	}
	err = errors.Join(errs...)
	if _, kept := errors.AsType[*worktree.KeptError](err); kept {
		err = cli.Fail(cli.ExitFailure, "", "%w", err)
	}
	return errors.Join(view.List(shell.Out, *shell.Format, gone), err)
}
