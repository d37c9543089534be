package worktree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
)

// An Attempt describes the attempt that works in a worktree.
type Attempt struct {
	ID                    string // "<job>.<epoch>"
	Title, Session, Batch string
	Base                  string // the commit that the job begins from
	// The user's position: the work tree that the job named, and its branch.
	OriginalDir, OriginalBranch string
}

// Again finds the worktree that an earlier attempt left, with the commit that it is at
// now; nil if the worktree is gone.
func (s *Repo) Again(ctx context.Context, attempt string) (*Worktree, error) {
	if attempt == "" {
		return nil, nil
	}
	records, err := readRecords(s.dir)
	i := slices.IndexFunc(records, func(wt Worktree) bool { return wt.Attempt == attempt && wt.State == "" })
	if err != nil || i < 0 {
		return nil, err
	}
	wt := records[i]
	if there, err := s.reuse(&wt, Request{}); err != nil || !there {
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

// TakeUp gives an existing worktree to the attempt, with all its files.
func (s *Repo) TakeUp(attempt string, wt Worktree) (Worktree, error) {
	wt.State, wt.Attempt = working, attempt
	wt.Stored, wt.Print, wt.Look = nil, "", nil
	return wt, s.writeRecord(wt)
}

// AddFor makes the worktree of an attempt; fill makes its files, and holds its lock
// until it has ended. Once the record exists a sweep knows the worktree; without the
// workspace's own record the sweep knows that no agent has had it.
func (s *Repo) AddFor(ctx context.Context, a Attempt, fill func(ctx context.Context, wt Worktree, admin string, hold *os.File) error) (Worktree, error) {
	if err := s.git().Run(ctx, "cat-file", "-e", a.Base+"^{commit}"); err != nil {
		return Worktree{}, fmt.Errorf("%s does not have commit %s", disk.Printable(s.repo), a.Base)
	}
	wt, err := s.planFor(ctx, a)
	if err != nil {
		return Worktree{}, err
	}
	return s.create(ctx, wt, func(admin string) error { return fill(ctx, wt, admin, s.lock.File) })
}

// planFor chooses a free name. Each attempt has a worktree of its own, unless it takes
// one up.
func (s *Repo) planFor(ctx context.Context, a Attempt) (Worktree, error) {
	records, err := readRecords(s.dir)
	if err != nil {
		return Worktree{}, err
	}
	job, _, _ := strings.Cut(a.ID, ".")
	slug := makeSlug(a.Title, job)
	ask := Request{Job: job, Session: a.Session, Batch: a.Batch, Base: a.Base, Name: slug}
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
	wt.Attempt, wt.Head, wt.OwnBranch = a.ID, a.Base, true
	wt.OriginalDir, wt.OriginalBranch = a.OriginalDir, a.OriginalBranch
	return wt, err
}

func (s *Repo) taken(ctx context.Context, records []Worktree, name string) (bool, error) {
	if slices.ContainsFunc(records, func(wt Worktree) bool { return strings.EqualFold(wt.Name, name) }) {
		return true, nil
	}
	tip, err := s.tip(ctx, ownBranches+name)
	return tip != "" || disk.Exists(filepath.Join(filepath.Dir(s.repo), ownDir, "worktrees", flat(name))), err
}

// workingFor finds the record of the worktree that an attempt works in, if it still
// exists.
func (r records) workingFor(attempt string) (wt Worktree, found bool, err error) {
	records, err := readRecords(r.dir)
	i := slices.IndexFunc(records, func(wt Worktree) bool { return wt.Attempt == attempt && wt.State == working })
	if err != nil || i < 0 {
		return Worktree{}, false, err
	}
	return records[i], true, nil
}

// Drop removes the worktree that an attempt works in, if it still exists.
func (s *Repo) Drop(ctx context.Context, attempt string) error {
	wt, found, err := s.workingFor(attempt)
	if err != nil || !found {
		return err
	}
	wt.State = removing
	if err := s.writeRecord(wt); err != nil {
		return err
	}
	return s.erase(ctx, wt)
}

// An Outcome is what an attempt leaves in its worktree, for people.
type Outcome struct {
	Head      string      // its last commit, as collected; "" if nothing was collected
	Commits   *NewCommits // nil: there are none, or the agent made them in the repository itself
	Collected bool
	Stored    *changes.Receipt // the part of the collected changes that is stored
	Look      []string         // changed files that people should check
	Limits    changes.Limits
}

// NewCommits are not in the user's repository yet.
type NewCommits struct {
	Base, Bundle string
	Index        func(ctx context.Context, commit string) (path string, err error)
}

// HandOver gives the worktree of an attempt to people: the agent's commits on its
// branch, and a .git that points to the repository.
func (s *Repo) HandOver(ctx context.Context, attempt string, left Outcome) error {
	if !disk.Exists(s.repo) {
		return s.Drop(ctx, attempt)
	}
	wt, found, err := s.workingFor(attempt)
	if err != nil || !found {
		return err
	}
	admin, err := s.registered(wt)
	if err == nil && admin == "" {
		err = fmt.Errorf("%s has no worktree at %s any more", disk.Printable(s.repo), disk.Printable(wt.Path))
	}
	if err != nil {
		return err
	}
	if left.Commits != nil {
		if err := s.advance(ctx, wt, admin, left); err != nil {
			return err
		}
	}
	if err := wt.LeadTo(admin); err != nil {
		return err
	}
	wt.Refreshed = time.Now()
	if left.Head != "" {
		wt.Head = left.Head
	}
	if left.Collected {
		wt.Stored, wt.Look = left.Stored, left.Look
	}
	if wt.Print, err = printOf(wt, left.Limits); err != nil {
		return err
	}
	wt.State = ""
	return s.writeRecord(wt)
}

// advance brings the agent's commits into the repository, and moves the worktree's
// branch to the last of them. Uncommitted files stay as they are.
func (s *Repo) advance(ctx context.Context, wt Worktree, admin string, left Outcome) error {
	c, tip := left.Commits, left.Head
	if _, err := s.takeCommits(ctx, Request{Base: c.Base, Bundle: c.Bundle}); err != nil {
		return err
	}
	index, err := c.Index(ctx, tip)
	if err != nil {
		return err
	}
	branch, err := headBranch(admin)
	if err != nil {
		return err
	}
	if err := s.git().Run(ctx, "update-ref", "-m", "penstock: job "+wt.Job, "refs/heads/"+branch, tip, c.Base); err != nil {
		return err
	}
	return disk.CopyFile(filepath.Join(admin, "index"), index)
}

// WorksFor reports whether a worktree of the repository belongs to an attempt.
func (t *Set) WorksFor(repo, attempt string) (bool, error) {
	s := newRepo(filepath.Join(t.dir, source.Digest(repo)), repo)
	_, found, err := s.workingFor(attempt)
	return found, err
}

// Settle completes unfinished changes of a repository's worktrees.
func (t *Set) Settle(ctx context.Context, repo string) error {
	s, err := t.Repo(ctx, repo)
	if err == nil {
		s.Close()
	}
	return err
}

// Withdraw removes the worktree that an attempt works in, if it still exists.
func (t *Set) Withdraw(ctx context.Context, repo, attempt string) error {
	s, err := t.Repo(ctx, repo)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Drop(ctx, attempt)
}
