package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/worktree"
)

// openLinked opens spaces whose jobs work in worktrees of the user's repository.
func openLinked(tb testing.TB) *Spaces {
	tb.Helper()
	s := openAs(tb, Linked, Limits{})
	s.cfg.Worktrees = filepath.Join(s.cfg.Dir, "worktrees")
	s.cfg.Salvage = salvageAll
	return s
}

func linkRequest(job, epoch, repo string) Request {
	return Request{ID: job + "." + epoch, Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree, Title: "Mend the frobnicator!", Session: job}
}

func prepareLinked(tb testing.TB, s *Spaces, r Request) *Workspace {
	tb.Helper()
	w, err := s.Prepare(tb.Context(), r)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

// inJail runs a script in the workspace as an agent would.
func inJail(tb testing.TB, w *Workspace, script string) string {
	tb.Helper()
	var out strings.Builder
	spec := sandbox.Spec{
		Args: []string{"sh", "-ec", script}, Label: w.ID(),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + sandbox.HomePath},
	}
	w.Show(&spec)
	exit, err := sandbox.Run(tb.Context(), w.spaces.cfg.Jail, spec, sandbox.Streams{Stdout: &out, Stderr: &out})
	if err != nil || !exit.Success() {
		tb.Fatalf("in the jail: %v, %v\n%s", exit, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func save(tb testing.TB, w *Workspace) Change {
	tb.Helper()
	c := collect(tb, w)
	if err := w.Saved(receipt(c)); err != nil {
		tb.Fatal(err)
	}
	return c
}

func closeSpace(tb testing.TB, w *Workspace) {
	tb.Helper()
	if err := w.Close(); err != nil {
		tb.Error(err)
	}
	nothingLeft(tb, w.spaces)
}

// onlyWorktrees fails unless the repository has exactly n linked worktrees, all of
// them with a record that is ready.
func onlyWorktrees(tb testing.TB, s *Spaces, repo string, n int) []worktree.Worktree {
	tb.Helper()
	if got := strings.Count(run(tb, repo, "git", "worktree", "list", "--porcelain"), "worktree ") - 1; got != n {
		tb.Errorf("git knows of %d linked worktrees, want %d", got, n)
	}
	names, err := disk.Names(filepath.Join(repo, ".penstock", "worktrees"))
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(names) != n {
		tb.Errorf("got directories %q, %v, want %d", names, err, n)
	}
	branches := run(tb, repo, "git", "for-each-ref", "--format=%(refname)", "refs/heads/penstock")
	if got := len(strings.Fields(branches)); got != n {
		tb.Errorf("got branches %s, want %d", branches, n)
	}
	list, err := worktree.New(s.cfg.Worktrees).List()
	if err != nil || len(list) != n || slices.ContainsFunc(list, func(wt worktree.Worktree) bool { return wt.State != "" }) {
		tb.Errorf("got records %+v, %v, want %d", list, err, n)
	}
	return list
}

func TestLinked(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	write(t, repo, "mine", "not committed")
	run(t, repo, "git", "config", "http.extraheader", "AUTHORIZATION: basic c2VjcmV0")
	w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
	wt, ok := w.Worktree()
	if !ok || w.Strategy() != Linked || wt.OriginalDir != repo || wt.OriginalBranch != "main" || wt.Session != jobA {
		t.Errorf("got %+v", wt)
	}
	if got := inJail(t, w, "git status --porcelain; git log --format=%s; git branch --show-current"); got != "first\nagent" {
		t.Errorf("in the jail: %s", got)
	}
	before := listing(t, filepath.Join(repo, ".git"))
	inJail(t, w, `echo one >> README; git commit -qam one; echo two > two; mkdir out; echo built > out/x
git tag mine; git branch also; git config user.name other; git gc -q --prune=now
if grep -r c2VjcmV0 /penstock /workspace; then exit 12; fi`)
	if after := listing(t, filepath.Join(repo, ".git")); after != before {
		t.Errorf("the agent wrote in the user's repository:\n%s\nwas\n%s", after, before)
	}
	c := save(t, w)
	if _, tree := apply(t, repo, c); tree == run(t, repo, "git", "rev-parse", "HEAD^{tree}") || c.Commits != 2 || c.Files != 2 {
		t.Errorf("got %+v", c)
	}
	if _, err := worktree.New(s.cfg.Worktrees).Remove(t.Context(), wt, true); err == nil {
		t.Error("a worktree in use was removed")
	}
	w.Keep()
	closeSpace(t, w)
	kept := onlyWorktrees(t, s, repo, 1)[0]
	if got := run(t, kept.Path, "git", "status", "--porcelain", "--branch"); got != "## "+wt.Branch+"\n?? two" {
		t.Errorf("people find %s", got)
	}
	if got := run(t, repo, "git", "status", "--porcelain"); got != "?? mine" {
		t.Errorf("the user's tree: %s", got)
	}
	if got := run(t, repo, "git", "worktree", "list", "--porcelain"); !strings.Contains(got, kept.Path+"\n") || strings.Contains(got, "locked") {
		t.Errorf("got %s", got)
	}
	if got := run(t, kept.Path, "git", "log", "--format=%s"); got != "one\nfirst" {
		t.Errorf("got commits %s", got)
	}
	// What the job left is stored, so it may go; the branch stays, because its
	// commit is nowhere else in the repository.
	if left, err := worktree.New(s.cfg.Worktrees).Remove(t.Context(), kept, false); err != nil || left != wt.Branch {
		t.Errorf("got %q, %v", left, err)
	}
	run(t, repo, "git", "branch", "-qD", wt.Branch)
	onlyWorktrees(t, s, repo, 0)
	run(t, repo, "git", "fsck", "--strict")
}

func TestLinkedGoesWithAnAttemptThatLeavesNothing(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
	inJail(t, w, "echo one >> README; git commit -qam one")
	if err := w.Close(); err == nil {
		t.Error("it was closed with changes that are not saved")
	}
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
	onlyWorktrees(t, s, repo, 0)
}

// The worker was killed before the workspace had a record, so no agent has had the
// worktree.
func TestLinkedThatNobodyWasGiven(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
	if err := os.Remove(w.path(recordFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context()); err != nil || !disk.Exists(w.Dir()) {
		t.Errorf("while it is being made: %v, is there: %v", err, disk.Exists(w.Dir()))
	}
	if err := w.leave(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
	onlyWorktrees(t, s, repo, 0)
}

// Killed when the worktree was withdrawn already, there is nothing to salvage.
func TestLinkedKilledAfterItWasWithdrawn(t *testing.T) {
	for _, keep := range []bool{false, true} {
		s, repo := openLinked(t), newRepo(t)
		w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
		inJail(t, w, "true")
		collect(t, w) // nothing, so nothing is saved
		want := 0
		if keep {
			w.Keep()
			want = 1
		}
		if err := w.withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.leave(); err != nil {
			t.Fatal(err)
		}
		if swept, err := s.Sweep(t.Context()); err != nil || len(swept.Kept) > 0 {
			t.Errorf("got %+v, %v", swept, err)
		}
		nothingLeft(t, s)
		onlyWorktrees(t, s, repo, want)
	}
}

func TestLinkedIsTakenUpAgain(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	w := prepareLinked(t, s, linkRequest(jobA, "7", repo))
	inJail(t, w, "echo one >> README; mkdir out; echo built > out/x")
	save(t, w)
	w.Keep()
	closeSpace(t, w)
	first := onlyWorktrees(t, s, repo, 1)[0]
	write(t, first.Path, "by-hand", "a person's")
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(first.Path, old, old); err != nil {
		t.Fatal(err)
	}

	again := linkRequest(jobA, "9", first.Path) // from inside the worktree: never nested
	again.Again, again.Repo.Commit = jobA+".7", w.Base()
	w = prepareLinked(t, s, again)
	if !w.Reused() || w.Dir() != first.Path {
		t.Errorf("got another one: %s", w.Dir())
	}
	if info, err := os.Stat(first.Path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("its time was not refreshed: %v", err)
	}
	if got := inJail(t, w, "cat out/x by-hand; git status --porcelain"); got != "built\na person's M README\n?? by-hand" {
		t.Errorf("got %s", got)
	}
	// A second request for the same worktree is refused meanwhile.
	other := again
	other.Repo.URL = repo
	other.ID = jobA + ".10"
	other.Again = jobA + ".9"
	if second, err := s.Prepare(t.Context(), other); err != nil || second.Reused() || second.Dir() == w.Dir() {
		t.Errorf("two attempts in one worktree: %v", err)
	} else {
		closeUnused(t, second)
	}
	if c := save(t, w); c.Files != 2 {
		t.Errorf("got %+v", c)
	}
	w.Keep()
	closeSpace(t, w)
	onlyWorktrees(t, s, repo, 1)
}

func closeUnused(tb testing.TB, w *Workspace) {
	tb.Helper()
	if err := w.Close(); err != nil {
		tb.Error(err)
	}
}

func TestLinkedAtOnce(t *testing.T) {
	s, repo := openLinked(t), newRepo(t)
	// Another worker on the same data directory.
	other, err := Open(t.Context(), s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			from := []*Spaces{s, other}[n%2]
			w, err := from.Prepare(t.Context(), linkRequest(fmt.Sprintf("job-%d", n), "1", repo))
			if err != nil {
				t.Error(err)
				return
			}
			inJail(t, w, "echo x > "+fmt.Sprintf("f%d", n)+"; git add -A; git commit -qm x")
			if _, err := from.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
			save(t, w)
			if n < 4 {
				w.Keep()
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	onlyWorktrees(t, s, repo, 4)
	run(t, repo, "git", "fsck", "--strict")
}

func TestLinkedRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(t *testing.T, s *Spaces, repo string) string
		want   string
	}{
		"no records":    {func(_ *testing.T, s *Spaces, repo string) string { s.cfg.Worktrees = ""; return repo }, "keeps no records"},
		"another owner": {func(t *testing.T, _ *Spaces, repo string) string { chown(t, filepath.Join(repo, ".git")); return repo }, "another user"},
		"a line break": {func(t *testing.T, _ *Spaces, repo string) string {
			to := filepath.Join(t.TempDir(), "two\nlines")
			run(t, "/", "cp", "-a", repo, to)
			return to
		}, "has a line break"},
		"bare": {func(t *testing.T, _ *Spaces, repo string) string {
			to := filepath.Join(t.TempDir(), "bare.git")
			run(t, "/", "git", "clone", "-q", "--bare", repo, to)
			return to
		}, "is bare"},
	} {
		t.Run(name, func(t *testing.T) {
			s, repo := openLinked(t), newRepo(t)
			repo = c.break_(t, s, repo)
			_, err := s.Prepare(t.Context(), linkRequest(jobA, "1", repo))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			nothingLeft(t, s)
		})
	}
}

func chown(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root gives a file to another user")
	}
	if err := os.Chown(path, 1234, 1234); err != nil {
		t.Fatal(err)
	}
}
