package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// A linked is the worktree of the user's own repository that a workspace is.
// What is done to it follows from its record, see [Worktrees].
type linked struct {
	wt     Worktree
	reused bool
	keep   bool   // for people, when the attempt ends
	tip    string // the agent's last commit, as collected
	// unjailed: the agent sees the host's paths.
	unjailed bool
}

// link makes the workspace a worktree of the user's repository. The files are
// made as those of a clone are: no filter of the repository's configuration
// runs.
func (w *Workspace) link(ctx context.Context, r Request, src source.Source) error {
	trees, err := w.spaces.linkable(src)
	if err != nil {
		return err
	}
	s, err := trees.shelf(ctx, src.Remote.URL)
	if err != nil {
		return err
	}
	defer s.close()
	again, err := s.again(ctx, r.Again)
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
	var at *linked
	if again != nil {
		at, err = s.takeUp(w.id, *again)
	} else {
		at, err = w.newLinked(ctx, s, r, src)
	}
	if err != nil {
		return err
	}
	w.linked = at
	w.linked.unjailed, w.dir = r.Unjailed, w.linked.wt.Path
	return w.enclose()
}

// linkable refuses a repository that can have no worktree for a job.
func (s *Spaces) linkable(src source.Source) (*Worktrees, error) {
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
	return OpenWorktrees(s.cfg.Worktrees)
}

// again finds the worktree that an earlier attempt left, with the commit that
// it is at now; nil if it is not there any more.
func (s *shelf) again(ctx context.Context, attempt string) (*Worktree, error) {
	if attempt == "" {
		return nil, nil
	}
	records, err := readRecords(s.dir)
	i := slices.IndexFunc(records, func(wt Worktree) bool { return wt.Attempt == attempt && wt.State == "" })
	if err != nil || i < 0 {
		return nil, err
	}
	wt := records[i]
	if there, err := s.reuse(&wt, WorktreeRequest{}); err != nil || !there {
		return nil, err
	}
	admin, err := s.registered(wt)
	if err != nil {
		return nil, err
	}
	if _, err := headBranch(admin); err != nil {
		return nil, nil // on no branch that could be moved
	}
	wt.Head, err = s.head(ctx, admin)
	return &wt, err
}

// takeUp makes a worktree that is there the attempt's. Whatever is in it stays.
func (s *shelf) takeUp(attempt string, wt Worktree) (*linked, error) {
	wt.State, wt.Attempt = working, attempt
	wt.Stored, wt.Print, wt.Look = nil, "", nil
	return &linked{wt: wt, reused: true}, s.keep(wt)
}

// newLinked makes a worktree. From its record on a sweep knows it, and by the
// absence of the workspace's own that nobody was given it.
func (w *Workspace) newLinked(ctx context.Context, s *shelf, r Request, src source.Source) (*linked, error) {
	if err := s.git().Run(ctx, "cat-file", "-e", w.commit+"^{commit}"); err != nil {
		return nil, fmt.Errorf("%s does not have commit %s", disk.Printable(s.repo), w.commit)
	}
	wt, err := w.planLinked(ctx, s, r, src)
	if err != nil {
		return nil, err
	}
	wt, err = s.make(ctx, wt, func(admin string) error { return w.fill(ctx, s, wt, admin) })
	return &linked{wt: wt}, err
}

// planLinked decides on a name that is free. Each attempt has a worktree of
// its own, unless it takes one up.
func (w *Workspace) planLinked(ctx context.Context, s *shelf, r Request, src source.Source) (Worktree, error) {
	records, err := readRecords(s.dir)
	if err != nil {
		return Worktree{}, err
	}
	job, _, _ := strings.Cut(w.id, ".")
	slug := makeSlug(r.Title, job)
	ask := WorktreeRequest{Job: job, Session: r.Session, Batch: r.Batch, Base: w.commit, Name: slug}
	for n := 2; ; n++ {
		taken, err := s.taken(ctx, records, ask.Name)
		if err != nil {
			return Worktree{}, err
		}
		if !taken {
			break
		}
		ask.Name = slug + "-" + strconv.Itoa(n)
	}
	wt, err := s.plan(records, ask)
	wt.Attempt, wt.Head, wt.OwnBranch = w.id, w.commit, true
	wt.OriginalDir, wt.OriginalBranch = src.Origin()
	return wt, err
}

func (s *shelf) taken(ctx context.Context, records []Worktree, name string) (bool, error) {
	if slices.ContainsFunc(records, func(wt Worktree) bool { return strings.EqualFold(wt.Name, name) }) {
		return true, nil
	}
	tip, err := s.tip(ctx, ownBranches+name)
	return tip != "" || disk.Exists(filepath.Join(filepath.Dir(s.repo), ownDir, "worktrees", flat(name))), err
}

// fill checks the base out, with its own git directory, and gives git's record
// of the worktree the index.
func (w *Workspace) fill(ctx context.Context, s *shelf, wt Worktree, admin string) error {
	own := git.Repo{
		Dir: w.base.Git(), WorkTree: wt.Path, Index: w.path("index"),
		Hold: []*os.File{w.lock.File, s.lock.File}, Progress: w.progress.Of("checkout"),
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

// unlink ends the workspace's hold on its worktree, which stays for people if
// they shall have it.
func (w *Workspace) unlink(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, unlinkTime)
	defer cancel()
	s, err := (&Worktrees{dir: w.spaces.cfg.Worktrees}).shelf(ctx, w.linked.wt.Repo)
	if err != nil {
		return err
	}
	defer s.close()
	return w.unlinkFrom(ctx, s)
}

// unlinkTime bounds the wait for others who work on the same repository.
const unlinkTime = 2 * time.Minute

func (w *Workspace) unlinkFrom(ctx context.Context, s *shelf) error {
	records, err := readRecords(s.dir)
	i := slices.IndexFunc(records, func(wt Worktree) bool { return wt.Attempt == w.id && wt.State == working })
	if err != nil || i < 0 {
		return err
	}
	wt := records[i]
	if !w.linked.keep || !disk.Exists(s.repo) {
		wt.State = removing
		if err := s.keep(wt); err != nil {
			return err
		}
		return s.erase(ctx, wt)
	}
	if err := w.handOver(ctx, s, &wt); err != nil {
		return err
	}
	wt.State = ""
	return s.keep(wt)
}

// handOver gives the worktree to people: the agent's commits on its branch, and
// a .git that leads to the repository.
func (w *Workspace) handOver(ctx context.Context, s *shelf, wt *Worktree) error {
	admin, err := s.registered(*wt)
	if err == nil && admin == "" {
		err = fmt.Errorf("%s has no worktree at %s any more", disk.Printable(s.repo), disk.Printable(wt.Path))
	}
	if err != nil {
		return err
	}
	if !w.linked.unjailed {
		if err := w.advance(ctx, s, *wt, admin); err != nil {
			return err
		}
	}
	if err := wt.lead(admin); err != nil {
		return err
	}
	wt.Refreshed = time.Now()
	if w.linked.tip != "" {
		wt.Head = w.linked.tip
	}
	if c := w.collected; c != nil {
		wt.Stored, wt.Look = w.receipt, c.Notable
	}
	wt.Print, err = printOf(*wt, w.spaces.cfg.Limits.changes())
	return err
}

// advance takes the agent's commits into the repository, and the branch that
// the worktree is on to the last of them. What the agent did not commit stays so.
func (w *Workspace) advance(ctx context.Context, s *shelf, wt Worktree, admin string) error {
	tip := w.linked.tip
	if tip == "" || tip == w.commit || w.collected == nil {
		return nil
	}
	if _, err := s.take(ctx, WorktreeRequest{Base: w.commit, Bundle: w.collected.Bundle}); err != nil {
		return err
	}
	own := w.repo()
	own.Index = w.path("index.kept")
	if err := own.Run(ctx, "read-tree", tip); err != nil {
		return err
	}
	branch, err := headBranch(admin)
	if err != nil {
		return err
	}
	if err := s.git().Run(ctx, "update-ref", "-m", "penstock: job "+wt.Job, "refs/heads/"+branch, tip, w.commit); err != nil {
		return err
	}
	return disk.CopyFile(filepath.Join(admin, "index"), own.Index)
}

// Keep lets a worktree of the user's repository stay when the workspace is
// closed, for people to look at. It means nothing to other workspaces.
func (w *Workspace) Keep() {
	if w.linked != nil {
		w.linked.keep = true
	}
}

// Reused reports whether the workspace is one that an earlier attempt left,
// with what was in it.
func (w *Workspace) Reused() bool { return w.linked != nil && w.linked.reused }

// Origin is where the user is: the work tree that the job's address led to,
// and the branch it is on. Both are "" for an address on another host.
func (w *Workspace) Origin() (dir, branch string) { return w.origin.Origin() }

// Worktree returns the record of the worktree that the workspace is; false
// for other workspaces.
func (w *Workspace) Worktree() (Worktree, bool) {
	if w.linked == nil {
		return Worktree{}, false
	}
	return w.linked.wt, true
}
