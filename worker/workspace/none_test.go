package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

func prepareNone(tb testing.TB, limits Limits, dir string) *Workspace {
	tb.Helper()
	return prepareAs(tb, open(tb, limits), "job.1", jobs.Repo{URL: dir}, jobs.IsolationNone)
}

func TestNoneCountsTheAgentsWorkOnly(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	// What the user has not committed, staged or not, new or not.
	sh(t, repo, "echo mine >> README; echo mine > untracked; echo mine > staged; git add staged; rm src/b.go; chmod +x src/a.go; echo x > big.log")
	gitBefore := listing(t, filepath.Join(repo, ".git"))
	w := prepareNone(t, Limits{}, repo)
	if got := collect(t, w); got.Files != 0 || got.PatchSize != 0 {
		t.Errorf("before any work: got\n%s", patch(t, got))
	}
	sh(t, repo, "echo agent >> README; echo agent > new; rm untracked; echo x > agent.log")
	change := collect(t, w)
	got := patch(t, change)
	for _, want := range []string{"+agent", "diff --git a/new b/new", "diff --git a/untracked b/untracked\ndeleted"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %q in it", got, want)
		}
	}
	for _, unwanted := range []string{"+mine", "staged", "src/", "log"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("got\n%s\nwant no %q", got, unwanted)
		}
	}
	if change.Files != 3 {
		t.Errorf("got %d files, want 3", change.Files)
	}
	if w.Base() != run(t, repo, "git", "rev-parse", "HEAD") {
		t.Errorf("got base %s", w.Base())
	}
	if gitAfter := listing(t, filepath.Join(repo, ".git")); gitAfter != gitBefore {
		t.Errorf("something was written to the user's .git:\n%s\nwas\n%s", gitAfter, gitBefore)
	}
	// The patch can be taken back where the agent worked.
	run(t, repo, "git", "apply", "-R", change.Patch)
	if data, err := os.ReadFile(filepath.Join(repo, "untracked")); err != nil || string(data) != "mine\n" {
		t.Errorf("the user's file does not come back: %q, %v", data, err)
	}
}

func TestNoneInALinkedWorktree(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	linked := filepath.Join(t.TempDir(), "linked")
	run(t, repo, "git", "worktree", "add", "-q", "-b", "side", linked)
	sh(t, linked, "echo x > x; git add x; git commit -qm side")
	w := prepareNone(t, Limits{}, linked)
	sh(t, linked, "echo agent > new; git add -A; git commit -qm work")
	if got := collect(t, w); got.Files != 1 || w.Dir() != linked {
		t.Errorf("got %d files in %s:\n%s", got.Files, w.Dir(), patch(t, got))
	}
}

func TestNoneSaysWhyThereIsNoPatch(t *testing.T) {
	t.Parallel()
	plain, unborn, large, repo := t.TempDir(), t.TempDir(), newRepo(t), newRepo(t)
	run(t, unborn, "git", "init", "-q")
	sh(t, large, "truncate -s 5G data")
	for _, c := range []struct{ dir, want string }{
		{plain, "is not a git repository"},
		{unborn, "no commit yet"},
		{filepath.Join(repo, "src"), "not the top"},
		{large, "over the limit"},
	} {
		w := prepareNone(t, Limits{}, c.dir)
		write(t, c.dir, "new", "x")
		got := collect(t, w)
		if len(got.Notes) != 1 || !strings.Contains(got.Notes[0], c.want) || got.Patch != "" {
			t.Errorf("%s: got notes %q and patch %q, want %q", c.dir, got.Notes, got.Patch, c.want)
		}
	}
}

func TestNoneWithoutRepository(t *testing.T) {
	t.Parallel()
	w := prepareAs(t, open(t, Limits{}), "job.1", jobs.Repo{}, jobs.IsolationNone)
	if got := collect(t, w); len(got.Notes) != 1 || got.Patch != "" || w.Base() != "" {
		t.Errorf("nothing written: got %+v, base %q", got, w.Base())
	}
	write(t, w.Dir(), "new", "x\n")
	if got := collect(t, w); got.Files != 1 || !strings.Contains(patch(t, got), "+x") {
		t.Errorf("a file written: got %+v", got)
	}
}

func TestNoneRefusesAnotherCommit(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	sh(t, repo, "git branch old; git commit -q --allow-empty -m second")
	old := run(t, repo, "git", "rev-parse", "old")
	s := open(t, Limits{})
	for i, r := range []jobs.Repo{{Ref: "old"}, {Commit: old}, {Ref: "nothing"}} {
		r.URL = repo
		if w, err := s.Prepare(t.Context(), Request{ID: fmt.Sprint(i), Repo: r, Isolation: jobs.IsolationNone}); err == nil {
			w.Close()
			t.Errorf("%v was accepted", r)
		}
	}
	prepareAs(t, s, "job.1", jobs.Repo{URL: repo, Ref: "main"}, jobs.IsolationNone)
	for _, r := range []jobs.Repo{{URL: "https://example.org/x"}, {URL: filepath.Join(repo, "README")}, {URL: filepath.Join(repo, "gone")}} {
		if _, err := s.Prepare(t.Context(), Request{ID: "job.2", Repo: r, Isolation: jobs.IsolationNone}); err == nil {
			t.Errorf("%v was accepted", r)
		}
	}
}
