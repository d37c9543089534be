package workspace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAgentCommits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		commits      int
		subjects     string // the newest first
		note         string
	}{
		{"no commit", "echo x > new", 0, "", ""},
		{"nothing at all", "true", 0, "", ""},
		{"one commit", "echo x > new; git add -A; git commit -qm one", 1, "one", ""},
		{"two commits, signed off", "echo x > a; git add -A; git commit -qsm one; echo y > a; git commit -qam two", 2, "two one", ""},
		{"and uncommitted", "echo x > a; git add -A; git commit -qm one; echo y > b", 2, "Uncommitted changes one", ""},
		{"taken back in files only", "echo x > a; git add -A; git commit -qm one; rm a", 2, "Uncommitted changes one", ""},
		{"ignored but added", "echo x > a.log; mkdir out; echo y > out/y; git add -f a.log out/y; git commit -qm one", 1, "one", ""},
		{"on another branch", "git switch -qc feature/x; echo x > a; git add -A; git commit -qm one", 1, "one", ""},
		{"detached", "git checkout -q --detach; echo x > a; git add -A; git commit -qm one", 1, "one", ""},
		{"merge", "git switch -qc b; echo x > a; git add -A; git commit -qm one; git switch -q agent; echo y > b; git add -A; git commit -qm two; git merge -q -m merged b", 3, "", ""},
		{"after gc", "echo x > a; git add -A; git commit -qm one; git gc -q --prune=now", 1, "one", ""},
		{"amended base", "git commit -q --amend -m other; echo x > a; git add -A; git commit -qm one", 0, "", "do not build on the base"},
		{"orphan", "git checkout -q --orphan o; git commit -qm one", 0, "", "do not build on the base"},
		{"no .git", "rm -rf .git; echo x > a", 0, "", "not part of the result"},
		{"broken", "echo x > a; git add -A; git commit -qm one; rm -rf .git/objects/*", 0, "", "not part of the result"},
		{"evil tree", `t=$(printf '040000 tree %s\t.GIT\n' $(git rev-parse HEAD^{tree}) | git mktree); c=$(git commit-tree -p HEAD -m evil $t); git update-ref refs/heads/agent $c`, 0, "", "not part of the result"},
		{"replaced", "echo x > a; git add -A; git commit -qm one; git replace -f HEAD HEAD~1", 1, "one", ""},
		{"grafted", "echo x > a; git add -A; git commit -qm one; mkdir -p .git/info; git rev-parse HEAD > .git/info/grafts", 1, "one", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			w := prepare(t, openJailed(t, Limits{}), "job.1", repo)
			sh(t, w.Dir(), c.script)
			for range 2 { // collecting again gives the same
				change := collect(t, w)
				if notes := strings.Join(change.Notes, " "); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
					t.Errorf("got notes %q, want %q", notes, c.note)
				}
				if change.Commits != c.commits {
					t.Errorf("got %d commits, want %d; notes %q", change.Commits, c.commits, change.Notes)
				}
				clone, tree := apply(t, repo, change)
				if change.Commits == 0 {
					if change.Bundle != "" || change.Head != "" {
						t.Errorf("got bundle %q to %q without commits", change.Bundle, change.Head)
					}
					continue
				}
				run(t, clone, "git", "fetch", "-q", change.Bundle, "agent:got")
				if got := run(t, clone, "git", "rev-parse", "got^{tree}"); got != tree {
					t.Errorf("the commits lead to tree %s, the patch to %s", got, tree)
				}
				if got := run(t, clone, "git", "rev-parse", "got"); got != change.Head {
					t.Errorf("got head %s, want %s", change.Head, got)
				}
				subjects := strings.ReplaceAll(run(t, clone, "git", "log", "--format=%s", w.Base()+"..got"), "\n", " ")
				if c.subjects != "" && subjects != c.subjects {
					t.Errorf("got commits %q, want %q", subjects, c.subjects)
				}
				run(t, clone, "git", "fsck", "--strict")
			}
		})
	}
}

// The jail may run the agent's programs; the host must not, and the series
// must not be lost where git can still read it.
func TestAgentCommitsOfPlantings(t *testing.T) {
	t.Parallel()
	for _, p := range someOf(plantings) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			marker, env := arm(t)
			repo := newRepo(t)
			s := openJailed(t, Limits{})
			s.commitsTime = 5 * time.Second // git waits for ever where its files are FIFOs
			w := prepare(t, s, "job.1", repo)
			sh(t, w.Dir(), env+"echo one > one; git add one; git commit -qm one\n"+p.script)
			write(t, w.Dir(), "work", "done\n")
			os.Remove(marker)
			change := collect(t, w)
			if ran, err := os.ReadFile(marker); err == nil {
				t.Fatalf("the host ran the agent's code: %s", ran)
			}
			if change.Commits == 0 && len(change.Notes) == 0 {
				t.Error("the commit is lost without a word")
			}
			dir, _ := apply(t, repo, change)
			if got, err := os.ReadFile(filepath.Join(dir, "work")); err != nil || string(got) != "done\n" {
				t.Errorf("the agent's work is not in the patch: %q, %v", got, err)
			}
		})
	}
}

func TestNoJailIsSaid(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "echo x > a; git add -A; git commit -qm one")
	change := collect(t, w)
	if change.Commits != 0 || len(change.Notes) != 1 || !strings.Contains(change.Notes[0], "no jail") {
		t.Errorf("got %d commits, notes %q", change.Commits, change.Notes)
	}
}
