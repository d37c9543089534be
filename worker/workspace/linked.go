package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
	"github.com/penstock-run/penstock/worker/worktree"
)

// linkedFiles are a worktree of the user's own repository. What is done to it
// follows from its record, see [worktree.Set].
type linkedFiles struct {
	own
	// unjailed: the agent sees the host's paths.
	unjailed bool
}

func (*linkedFiles) strategy() Strategy { return Linked }
func (w *linkedFiles) check() error     { return w.worktree.There() }

// prepare makes the workspace a worktree of the user's repository. It makes the files
// like those of a clone: no filter of the repository's configuration runs.
func (w *linkedFiles) prepare(ctx context.Context, r Request) error {
	src := w.origin
	trees, err := w.spaces.linkable(src)
	if err != nil {
		return err
	}
	s, err := trees.Repo(ctx, src.Remote.URL)
	if err != nil {
		return err
	}
	defer s.Close()
	again, err := s.Again(ctx, r.Again)
	if err != nil {
		return err
	}
	if again != nil {
		r.Repo.Commit = again.Head
	}
	if err := w.begin(ctx, src, repocache.Revision{Ref: r.Repo.Ref, Commit: r.Repo.Commit}); err != nil {
		return err
	}
	w.before = changes.State{Tree: w.commit + "^{tree}", Index: w.base.Index()}
	var wt worktree.Worktree
	if again != nil {
		wt, err = s.TakeUp(w.id, *again)
	} else {
		wt, err = s.AddFor(ctx, w.attempt(r, src), w.fill)
	}
	if err != nil {
		return err
	}
	w.worktree, w.reused, w.unjailed = &wt, again != nil, r.Unjailed
	w.dir = wt.Path
	return w.enclose()
}

// worktrees are those of the users' repositories.
func (s *Spaces) worktrees() *worktree.Set { return worktree.New(s.cfg.Worktrees) }

// linkable refuses a repository that can have no worktree for a job.
func (s *Spaces) linkable(src source.Source) (*worktree.Set, error) {
	refuse := func(why string) error {
		return &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "repo.url", Reason: disk.Printable(src.Name) + " " + why + ", so there can be no linked worktree of it"}}}
	}
	if s.cfg.Worktrees == "" {
		return nil, errors.New("workspace strategy linked: this worker keeps no records of worktrees")
	}
	repo := src.Remote.URL
	if !src.Remote.Local {
		return nil, refuse("is not a repository of this host")
	}
	if strings.ContainsAny(repo, "\r\n") {
		return nil, refuse("has a line break in its path, which no jail can show")
	}
	if filepath.Base(repo) != ".git" {
		return nil, refuse("is bare, or keeps its git directory elsewhere")
	}
	info, err := os.Stat(repo)
	if err != nil {
		return nil, err
	}
	if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil, refuse("belongs to another user than the worker")
	}
	return worktree.Open(s.cfg.Worktrees)
}

// attempt describes the attempt to the repository of worktrees.
func (w *linkedFiles) attempt(r Request, src source.Source) worktree.Attempt {
	a := worktree.Attempt{ID: w.id, Title: r.Title, Session: r.Session, Batch: r.Batch, Base: w.commit}
	a.OriginalDir, a.OriginalBranch = src.Origin()
	return a
}

// fill checks the base out, with its own git directory, and gives git's record
// of the worktree the index.
func (w *linkedFiles) fill(ctx context.Context, wt worktree.Worktree, admin string, hold *os.File) error {
	own := git.Repo{
		Dir: w.base.Git(), WorkTree: wt.Path, Index: w.path("index"),
		Hold: []*os.File{w.lock.File, hold}, Progress: w.progress.Of("checkout"),
	}
	if err := own.CheckOut(ctx, w.commit); err != nil {
		return fmt.Errorf("check out %s: %w", w.commit, err)
	}
	info, err := os.Stat(own.Index)
	if err != nil {
		return err
	}
	w.before.Index, w.before.Written = own.Index, info.ModTime()
	return disk.CopyFile(filepath.Join(admin, "index"), own.Index)
}

// unlinkTime bounds the wait for other processes that work on the same repository.
const unlinkTime = 2 * time.Minute

// release ends the workspace's hold on its worktree, which stays if people shall have
// it.
func (w *linkedFiles) release(ctx context.Context, kept *contents) error {
	if w.worktree == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unlinkTime)
	defer cancel()
	repo, err := w.spaces.worktrees().Repo(ctx, w.worktree.Repo)
	if err != nil {
		return err
	}
	defer repo.Close()
	if kept == nil {
		return repo.Drop(ctx, w.id)
	}
	return repo.HandOver(ctx, w.id, w.outcome(kept))
}

func (w *linkedFiles) released() (bool, error) {
	working, err := w.spaces.worktrees().WorksFor(w.worktree.Repo, w.id)
	return !working, err
}

// outcome is what people find in the worktree.
func (w *linkedFiles) outcome(kept *contents) worktree.Outcome {
	left := worktree.Outcome{Limits: w.spaces.cfg.Limits.changes()}
	c := kept.change
	if c == nil {
		return left
	}
	left.Head, left.Collected, left.Stored, left.Look = c.tip, true, kept.receipt, c.Notable
	// An agent without a jail made its commits in the repository itself.
	if c.tip != "" && c.tip != w.commit && !w.unjailed {
		left.Commits = &worktree.NewCommits{Base: w.commit, Bundle: c.Bundle, Index: w.indexOf}
	}
	return left
}

// indexOf makes an index of a commit of the agent's.
func (w *linkedFiles) indexOf(ctx context.Context, commit string) (string, error) {
	own := w.repo()
	own.Index = w.path("index.kept")
	return own.Index, own.Run(ctx, "read-tree", commit)
}

// Keep lets a worktree of the user's repository stay when the workspace is
// closed, for people to look at. It means nothing to other workspaces.
func (w *Workspace) Keep() { w.keep = true }

// Reused reports whether the workspace is the one of an earlier attempt, with its
// contents.
func (w *Workspace) Reused() bool { return w.reused }

// Origin is where the user is: the work tree that the job's address led to,
// and the branch it is on. Both are "" for an address on another host.
func (w *Workspace) Origin() (dir, branch string) { return w.origin.Origin() }

// Worktree returns the record of the worktree that the workspace is; false
// for other workspaces.
func (w *Workspace) Worktree() (worktree.Worktree, bool) {
	if w.worktree == nil {
		return worktree.Worktree{}, false
	}
	return *w.worktree, true
}
