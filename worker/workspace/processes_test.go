package workspace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// counted lets the host's git leave a line for each of its processes.
func counted(t *testing.T) (commands func() []string) {
	t.Helper()
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := fmt.Sprintf("#!/bin/sh\nprintf '%%s\\t' \"$@\" >> %s\necho >> %[1]s\nexec %[2]s \"$@\"\n", log, real)
	if err := exectest.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		data, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		os.Remove(log)
		var found []string
		for line := range strings.Lines(string(data)) {
			words := strings.Split(line, "\t")
			for len(words) > 2 && words[0] == "-c" {
				words = words[2:]
			}
			found = append(found, words[0])
		}
		return found
	}
}

// TestCollectStartsFewProcesses: of the time that collecting a few files takes
// most is the start of git, so a process more is a tenth of it more.
func TestCollectStartsFewProcesses(t *testing.T) {
	repo := newRepo(t)
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"reading": {"cat README; echo x > new; rm new", nil},
		"nothing": {"git status", nil},
		"files":   {"echo x > new; echo y >> README; rm src/b.go", []string{"update-index", "fast-import", "diff-tree", "apply"}},
		"commits": {"echo x > new; git add -A; git commit -qm one", []string{
			"index-pack", "rev-list", "diff-tree", "update-index", "fast-import", "diff-tree", "apply", "bundle"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openAs(t, Overlay, Limits{})
			w := prepareAs(t, s, "job.1", jobs.Repo{URL: repo}, jobs.IsolationWorktree)
			act(t, w, c.script)
			commands := counted(t)
			if name != "commits" {
				s.cfg.Jail = nil // it is not asked either
			}
			change := collect(t, w)
			if _, err := os.Stat(w.path("git")); os.IsNotExist(err) != (name == "reading") {
				t.Errorf("the host's git directory: %v", err)
			}
			if got := commands(); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if len(change.Notes) > 0 || (change.Commits > 0) != (name == "commits") {
				t.Errorf("got %+v", change)
			}
		})
	}
}

// TestPrepareStartsOneProcess: once a commit is here, a job on it asks the repository
// which commit that is, in one process, and starts no other.
func TestPrepareStartsOneProcess(t *testing.T) {
	s := openAs(t, Overlay, Limits{})
	repo := newRepo(t)
	if err := prepareAs(t, s, "job.1", jobs.Repo{URL: repo}, jobs.IsolationWorktree).remove(); err != nil {
		t.Fatal(err)
	}
	commands := counted(t)
	prepareAs(t, s, "job.2", jobs.Repo{URL: repo}, jobs.IsolationWorktree)
	if got, want := commands(), []string{"upload-pack"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoCommitIsOverlooked: a jail is spared only where there can be none.
func TestNoCommitIsOverlooked(t *testing.T) {
	s := openAs(t, Overlay, Limits{})
	repo := newRepo(t)
	const commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
	for name, c := range map[string]struct {
		script string
		want   bool
	}{
		"nothing":           {"true", false},
		"status":            {"touch README; git status", false},
		"files":             {"echo x > new; rm README", false},
		"commit":            {commit, true},
		"empty tree":        {"git rm -q -r .; " + commit, true},
		"packed":            {commit + "; git gc -q", true},
		"another branch":    {"git switch -qc other; " + commit, true},
		"index removed":     {commit + "; rm .git/index", true},
		"another directory": {"mv .git /workspace/g; echo 'gitdir: g' > .git; " + commit, true},
		"a link":            {"mv .git g; ln -s g .git; " + commit, true},
		"moved away":        {commit + "; mv .git g; mkdir g2; mv g .git", true},
		"made anew":         {"rm -rf .git; git init -q; git add -A; " + commit, true},
		"removed":           {"rm -rf .git", true},
		"elsewhere":         {"cp -r .git g; rm -rf .git; GIT_DIR=g " + commit + "; mv g .git", true},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			w := prepareAs(t, s, "job."+strings.ReplaceAll(name, " ", "-"), jobs.Repo{URL: repo}, jobs.IsolationWorktree)
			act(t, w, c.script)
			if got := w.collection().directory().MayHaveCommits(); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
