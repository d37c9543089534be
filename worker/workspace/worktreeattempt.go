package workspace

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

// A worktreeAttempt is what a worktree is made for, where a job works in it.
type worktreeAttempt struct {
	id                    string // "<job>.<epoch>"
	title, session, batch string
	base                  string // the commit that the job begins from
	// Where the user is: the work tree that the job named, and its branch.
	originalDir, originalBranch string
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
func (s *shelf) takeUp(attempt string, wt Worktree) (Worktree, error) {
	wt.State, wt.Attempt = working, attempt
	wt.Stored, wt.Print, wt.Look = nil, "", nil
	return wt, s.keep(wt)
}

// addFor makes the worktree of an attempt; fill makes its files, and holds what
// it is given until it has ended. From the worktree's record on a sweep knows it,
// and by the absence of the workspace's own that nobody was given it.
func (s *shelf) addFor(ctx context.Context, a worktreeAttempt, fill func(ctx context.Context, wt Worktree, admin string, hold *os.File) error) (Worktree, error) {
	if err := s.git().Run(ctx, "cat-file", "-e", a.base+"^{commit}"); err != nil {
		return Worktree{}, fmt.Errorf("%s does not have commit %s", disk.Printable(s.repo), a.base)
	}
	wt, err := s.planFor(ctx, a)
	if err != nil {
		return Worktree{}, err
	}
	return s.make(ctx, wt, func(admin string) error { return fill(ctx, wt, admin, s.lock.File) })
}

// planFor decides on a name that is free. Each attempt has a worktree of
// its own, unless it takes one up.
func (s *shelf) planFor(ctx context.Context, a worktreeAttempt) (Worktree, error) {
	records, err := readRecords(s.dir)
	if err != nil {
		return Worktree{}, err
	}
	job, _, _ := strings.Cut(a.id, ".")
	slug := makeSlug(a.title, job)
	ask := WorktreeRequest{Job: job, Session: a.session, Batch: a.batch, Base: a.base, Name: slug}
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
	wt.Attempt, wt.Head, wt.OwnBranch = a.id, a.base, true
	wt.OriginalDir, wt.OriginalBranch = a.originalDir, a.originalBranch
	return wt, err
}

func (s *shelf) taken(ctx context.Context, records []Worktree, name string) (bool, error) {
	if slices.ContainsFunc(records, func(wt Worktree) bool { return strings.EqualFold(wt.Name, name) }) {
		return true, nil
	}
	tip, err := s.tip(ctx, ownBranches+name)
	return tip != "" || disk.Exists(filepath.Join(filepath.Dir(s.repo), ownDir, "worktrees", flat(name))), err
}

// workingFor finds the record of the worktree that an attempt works in, if there
// still is one.
func (s *shelf) workingFor(attempt string) (wt Worktree, found bool, err error) {
	records, err := readRecords(s.dir)
	i := slices.IndexFunc(records, func(wt Worktree) bool { return wt.Attempt == attempt && wt.State == working })
	if err != nil || i < 0 {
		return Worktree{}, false, err
	}
	return records[i], true, nil
}

// drop removes the worktree that an attempt works in, if there still is one.
func (s *shelf) drop(ctx context.Context, attempt string) error {
	wt, found, err := s.workingFor(attempt)
	if err != nil || !found {
		return err
	}
	wt.State = removing
	if err := s.keep(wt); err != nil {
		return err
	}
	return s.erase(ctx, wt)
}

// A leftBehind is what an attempt leaves in its worktree, for people.
type leftBehind struct {
	head      string      // its last commit, as collected; "" if it was not
	commits   *newCommits // nil: there are none, or the agent made them in the repository itself
	collected bool
	stored    *Receipt // what is stored of what was collected
	look      []string // changed files that deserve a look
	limits    changes.Limits
}

// newCommits are not in the user's repository yet.
type newCommits struct {
	base, bundle string
	index        func(ctx context.Context, commit string) (path string, err error)
}

// handOver gives the worktree of an attempt to people: the agent's commits on its
// branch, and a .git that leads to the repository.
func (s *shelf) handOver(ctx context.Context, attempt string, left leftBehind) error {
	if !disk.Exists(s.repo) {
		return s.drop(ctx, attempt)
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
	if left.commits != nil {
		if err := s.advance(ctx, wt, admin, left); err != nil {
			return err
		}
	}
	if err := wt.lead(admin); err != nil {
		return err
	}
	wt.Refreshed = time.Now()
	if left.head != "" {
		wt.Head = left.head
	}
	if left.collected {
		wt.Stored, wt.Look = left.stored, left.look
	}
	if wt.Print, err = printOf(wt, left.limits); err != nil {
		return err
	}
	wt.State = ""
	return s.keep(wt)
}

// advance takes the agent's commits into the repository, and the branch that
// the worktree is on to the last of them. What the agent did not commit stays so.
func (s *shelf) advance(ctx context.Context, wt Worktree, admin string, left leftBehind) error {
	c, tip := left.commits, left.head
	if _, err := s.take(ctx, WorktreeRequest{Base: c.base, Bundle: c.bundle}); err != nil {
		return err
	}
	index, err := c.index(ctx, tip)
	if err != nil {
		return err
	}
	branch, err := headBranch(admin)
	if err != nil {
		return err
	}
	if err := s.git().Run(ctx, "update-ref", "-m", "penstock: job "+wt.Job, "refs/heads/"+branch, tip, c.base); err != nil {
		return err
	}
	return disk.CopyFile(filepath.Join(admin, "index"), index)
}

// worksFor reports whether a worktree of the repository is an attempt's.
func (t *Worktrees) worksFor(repo, attempt string) (bool, error) {
	s := &shelf{dir: filepath.Join(t.dir, source.Digest(repo)), repo: repo}
	_, found, err := s.workingFor(attempt)
	return found, err
}

// settle ends what was begun with the worktrees of a repository.
func (t *Worktrees) settle(ctx context.Context, repo string) error {
	s, err := t.shelf(ctx, repo)
	if err == nil {
		s.close()
	}
	return err
}

// withdraw removes the worktree that an attempt works in, if there still is one.
func (t *Worktrees) withdraw(ctx context.Context, repo, attempt string) error {
	s, err := t.shelf(ctx, repo)
	if err != nil {
		return err
	}
	defer s.close()
	return s.drop(ctx, attempt)
}
