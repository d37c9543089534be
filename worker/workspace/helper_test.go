package workspace

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashChild()
	}
	if os.Getenv(hookCrashEnv) != "" {
		hookCrashChild()
	}
	if os.Getenv(linkedCrashEnv) != "" {
		linkedCrashChild()
	}
	if os.Getenv(worktreeEnv) != "" {
		worktreeChild()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(template())
		os.Exit(code)
	}))
}

// run runs git, or another program, as a person would in dir.
func run(tb testing.TB, dir, program string, args ...string) string {
	tb.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = gitEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// sh runs a script as the agent would, in its workspace.
func sh(tb testing.TB, dir, script string) { tb.Helper(); run(tb, dir, "sh", "-ec", script) }

func write(tb testing.TB, dir, name, content string) {
	tb.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := exectest.WriteFile(full, []byte(content), 0o644); err != nil {
		tb.Fatal(err)
	}
}

func symlink(tb testing.TB, to, name string) {
	tb.Helper()
	if err := os.Symlink(to, name); err != nil {
		tb.Fatal(err)
	}
}

func executable(tb testing.TB, name string) {
	tb.Helper()
	if err := os.Chmod(name, 0o755); err != nil {
		tb.Fatal(err)
	}
}

// newRepo makes a user's repository with a few files of every kind.
func newRepo(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "user repo")
	if err := os.CopyFS(dir, os.DirFS(template())); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// template is made once: git needs many files and processes for it.
var template = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "penstock-template-")
	if err != nil {
		panic(err)
	}
	script := `git init -q -b main
printf 'hello\nworld\n' > README
mkdir src tools many
echo package a > src/a.go
echo package b > src/b.go
printf '#!/bin/sh\ncat\n' > tools/fmt.sh
chmod +x tools/fmt.sh
printf '*.log\n/out/\n' > .gitignore
echo tracked although ignored > kept.log
for i in 0 1 2 3 4 5 6 7 8 9; do echo file $i > many/f$i; done
ln -s README link
git add -A -f
git commit -q -m first
rm -r .git/hooks`
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir, cmd.Env = dir, gitEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Sprint(err, string(out)))
	}
	return dir
})

func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.org")
}

func open(tb testing.TB, limits Limits) *Spaces {
	tb.Helper()
	return openIn(tb, tb.TempDir(), limits)
}

func openIn(tb testing.TB, dir string, limits Limits) *Spaces {
	tb.Helper()
	s, err := Open(context.Background(), Config{Dir: dir, Limits: limits})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// openJailed is open, for tests that need the agent's commits.
func openJailed(tb testing.TB, limits Limits) *Spaces {
	tb.Helper()
	return openAs(tb, Clone, limits)
}

// monitored are limits with which small repositories have a monitor.
var monitored = Limits{MonitoredFiles: 1}

func openAs(tb testing.TB, strategy Strategy, limits Limits) *Spaces {
	tb.Helper()
	jail := &bwrap.Backend{}
	sandboxtest.Require(tb, jail)
	s, err := Open(context.Background(), Config{Dir: tb.TempDir(), Limits: limits, Jail: jail, Strategy: strategy})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func prepare(tb testing.TB, s *Spaces, id, url string) *Workspace {
	tb.Helper()
	return prepareAs(tb, s, id, jobs.Repo{URL: url}, jobs.IsolationWorktree)
}

func prepareAs(tb testing.TB, s *Spaces, id string, repo jobs.Repo, isolation jobs.Isolation) *Workspace {
	tb.Helper()
	w, err := s.Prepare(context.Background(), Request{ID: id, Repo: repo, Isolation: isolation})
	if err != nil {
		tb.Fatalf("prepare: %v", err)
	}
	tb.Cleanup(func() {
		if err := w.remove(); err != nil {
			tb.Errorf("close: %v", err)
		}
		nothingLeft(tb, s)
	})
	return w
}

func collect(tb testing.TB, w *Workspace) Change {
	tb.Helper()
	c, err := w.Collect(context.Background())
	if err != nil {
		tb.Fatalf("collect: %v", err)
	}
	return c
}

func patch(tb testing.TB, c Change) string {
	tb.Helper()
	data, err := os.ReadFile(c.Patch)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// apply applies a change to a fresh clone of the user's repository and
// returns the tree that comes out.
func apply(tb testing.TB, repo string, c Change) (dir, tree string) {
	tb.Helper()
	dir = filepath.Join(tb.TempDir(), "clone")
	run(tb, "/", "git", "clone", "-q", "--no-hardlinks", repo, dir)
	if c.PatchSize > 0 {
		run(tb, dir, "git", "apply", "--index", c.Patch)
	}
	return dir, run(tb, dir, "git", "write-tree")
}

// nothingLeft looks for what a closed workspace may have left.
func nothingLeft(tb testing.TB, s *Spaces) {
	tb.Helper()
	for _, sub := range []string{"jobs", "locks", "trash"} {
		names, err := disk.Names(filepath.Join(s.cfg.Dir, sub))
		if err != nil || len(names) > 0 {
			tb.Errorf("%s: %q left behind, err %v", sub, names, err)
		}
	}
}

// listing describes every file of a directory: what it is, holds and when it
// was changed.
func listing(tb testing.TB, dir string) string {
	tb.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, p, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return b.String()
}
