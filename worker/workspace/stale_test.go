package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/source"
	"github.com/penstock-run/penstock/worker/worktree"
)

// aged makes an old, unused worktree of a finished job.
func aged(t *testing.T, s *Spaces, repo string) worktree.Worktree {
	t.Helper()
	w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
	inJail(t, w, "echo one >> README; git commit -qam one; echo two > two; mkdir out; echo built > out/x")
	save(t, w)
	w.Keep()
	closeSpace(t, w)
	wt := onlyWorktrees(t, s, repo, 1)[0]
	makeOld(t, wt)
	return wt
}

func makeOld(t *testing.T, wt worktree.Worktree) {
	t.Helper()
	admin := registration(t, wt)
	old := time.Now().Add(-31 * 24 * time.Hour)
	for _, name := range []string{wt.Path, filepath.Join(admin, "index"), filepath.Join(admin, "logs/HEAD")} {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
}

// registration is what the repository keeps of a worktree. Its .git may lead to
// where a jail sees a repository.
func registration(t *testing.T, wt worktree.Worktree) string {
	t.Helper()
	gitdirs, err := filepath.Glob(filepath.Join(wt.Repo, "worktrees/*/gitdir"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range gitdirs {
		if data, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(data)) == wt.Path+"/.git" {
			return filepath.Dir(name)
		}
	}
	t.Fatalf("%s is not registered", wt.Path)
	return ""
}

func age(t *testing.T, s *Spaces, wt worktree.Worktree) worktree.Worktree {
	t.Helper()
	wt.Refreshed = time.Now().Add(-31 * 24 * time.Hour)
	record := filepath.Join(s.cfg.Worktrees, source.Digest(wt.Repo), wt.Name+".json")
	if err := disk.ReplaceFile(record, record+".new", wt); err != nil {
		t.Fatal(err)
	}
	return wt
}

func TestStaleWorktrees(t *testing.T) {
	t.Parallel()
	stored := func(context.Context, string, changes.Receipt) (bool, error) { return true, nil }
	for name, c := range map[string]struct {
		change func(t *testing.T, s *Spaces, repo string, wt worktree.Worktree)
		why    string // it stays; "" is removed
	}{
		"nobody came": {func(*testing.T, *Spaces, string, worktree.Worktree) {}, ""},
		"only built": {func(t *testing.T, _ *Spaces, _ string, wt worktree.Worktree) {
			sh(t, wt.Path, "git add two; git commit -qm two; git tag two; echo more > out/y")
		}, ""},
		"edited": {func(t *testing.T, _ *Spaces, _ string, wt worktree.Worktree) { write(t, wt.Path, "two", "other") }, "uncommitted changes"},
		"committed": {func(t *testing.T, _ *Spaces, _ string, wt worktree.Worktree) {
			sh(t, wt.Path, "git add two; git commit -qm two")
		}, "commits that no remote"},
		"not stored": {func(_ *testing.T, s *Spaces, _ string, _ worktree.Worktree) {
			s.cfg.Stored = func(context.Context, string, changes.Receipt) (bool, error) { return false, nil }
		}, "not in the store"},
		"no store": {func(_ *testing.T, s *Spaces, _ string, _ worktree.Worktree) {
			s.cfg.Stored = func(context.Context, string, changes.Receipt) (bool, error) { return false, errors.New("it is away") }
		}, "it is away"},
		"store unknown": {func(_ *testing.T, s *Spaces, _ string, _ worktree.Worktree) { s.cfg.Stored = nil }, "cannot be known"},
		"locked": {func(t *testing.T, _ *Spaces, repo string, wt worktree.Worktree) {
			run(t, repo, "git", "worktree", "lock", wt.Path)
		}, "locked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, repo := openLinked(t), newRepo(t)
			s.cfg.Stored = stored
			wt := aged(t, s, repo)
			if swept, err := s.Sweep(t.Context()); err != nil || len(swept.Worktrees) > 0 {
				t.Errorf("one that was asked for lately: %+v, %v", swept, err)
			}
			c.change(t, s, repo, wt)
			makeOld(t, wt)
			wt = age(t, s, wt)
			for _, sweep := range []func(context.Context) (Swept, error){s.Preview, s.Sweep} {
				swept, err := sweep(t.Context())
				why, found := swept.Worktrees[wt.Path]
				if err != nil || !found || (why == nil) != (c.why == "") || why != nil && !strings.Contains(why.Error(), c.why) {
					t.Errorf("got %+v, %v", swept, err)
				}
			}
			if disk.Exists(wt.Path) != (c.why != "") {
				t.Errorf("%s: is there: %v", wt.Path, disk.Exists(wt.Path))
			}
			run(t, repo, "git", "rev-parse", "-q", "--verify", wt.Head) // never lost
		})
	}
}

func TestStaleWorktreeInUseStays(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	s.cfg.Stored = func(context.Context, string, changes.Receipt) (bool, error) { return true, nil }
	wt := age(t, s, aged(t, s, repo))
	r := linkRequest(jobA, "9", repo)
	r.Again = wt.Attempt
	w := prepareLinked(t, s, r)
	now, _ := w.Worktree()
	makeOld(t, now)
	age(t, s, now)
	if swept, err := s.Sweep(t.Context()); err != nil || len(swept.Worktrees) > 0 || !disk.Exists(wt.Path) {
		t.Errorf("got %+v, %v", swept, err)
	}
	closeUnused(t, w)
}
