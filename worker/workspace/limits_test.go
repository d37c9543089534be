package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/internal/changes"
)

func TestLimitsRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		limits       Limits
		want         string
	}{
		{"files", "for i in 1 2 3 4 5; do echo x > n$i; done", Limits{Files: 4}, "changed files"},
		{"bytes", "head -c 5000 /dev/zero > big", Limits{Bytes: 4000}, "bytes in changed files"},
		{"sparse file", "truncate -s 10G sparse", Limits{}, "bytes in changed files"},
		{"sparse file of a known name", "truncate -s 10G README", Limits{}, "bytes in changed files"},
		{"patch", "head -c 50000 /dev/urandom | base64 > big", Limits{Patch: 10000}, "bytes of patch"},
		{"depth", "mkdir -p $(seq -s/ 1 20)", Limits{Depth: 10}, "directories above a file"},
		{"path", "d=$(printf %0200d 0); mkdir -p $d/$d; echo x > $d/$d/f", Limits{Path: 300}, "bytes of a path"},
		{"entries", "mkdir e; cd e; for i in 1 2 3 4 5 6 7 8 9 10; do : > $i; done", Limits{Entries: 30}, "files and directories"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, open(t, c.limits), "job.1", newRepo(t))
			sh(t, w.Dir(), c.script)
			began := time.Now()
			change := collect(t, w)
			if change.Over == nil || change.Over.What != c.want || len(change.Skipped) == 0 {
				t.Errorf("got %+v, want a LimitError about %q", change, c.want)
			}
			if took := time.Since(began); took > slowtest.Limit(5*time.Second) {
				t.Errorf("took %v to refuse", took)
			}
		})
	}
}

// What is ignored costs nothing and breaks no limit.
func TestLimitsLeaveIgnoredAlone(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{Depth: 10, Bytes: 1000}), "job.1", newRepo(t))
	sh(t, w.Dir(), "mkdir -p out/$(seq -s/ 1 50); truncate -s 10G out/big; echo x > new")
	if got := collect(t, w); got.Files != 1 {
		t.Errorf("got %d files, want 1", got.Files)
	}
}

func TestLargeFileAndManyFiles(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes 20 MB and 3,000 files")
	}
	repo := newRepo(t)
	w := prepare(t, open(t, Limits{}), "job.1", repo)
	sh(t, w.Dir(), `head -c 20000000 /dev/urandom > big
for d in $(seq 0 99); do mkdir -p lots/$d; done
i=0; while [ $i -lt 3000 ]; do echo x$i > lots/$((i % 100))/$i; i=$((i+1)); done`)
	change := collect(t, w)
	if change.Files != 3001 {
		t.Errorf("got %d files, want 3001", change.Files)
	}
	dir, _ := apply(t, repo, change)
	if got, want := sum(t, dir, "big"), sum(t, w.Dir(), "big"); got != want {
		t.Errorf("the large file is not the same: %s, want %s", got, want)
	}
}

func sum(t *testing.T, dir, name string) string { return run(t, dir, "sha256sum", name) }

func TestCloseRemovesEverything(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"mode 000", "mkdir -p d/x/y; touch d/x/y/f; chmod 000 d/x/y d/x d; chmod 000 README; chmod 000 ."},
		{"read-only", "mkdir -p d/x; touch d/x/f; chmod 500 d/x d; chmod 500 ."},
		{"names", `echo x > "a
b"; mkdir -- "-rf"; echo x > "-rf/$(printf '\377')"; mkdir "..."; touch ".../x"`},
		{"links", "ln -s / root; ln -s .. up; ln -s loop loop; rm -r src; ln -s /etc src"},
		{"special", "mkfifo p; rm -rf .git; mkfifo .git"},
		{"wide", "mkdir w; cd w; seq 1 5000 | xargs touch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, Limits{})
			w := prepare(t, s, "job.1", newRepo(t))
			sh(t, w.Dir(), c.script)
			if err := w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			nothingLeft(t, s)
		})
	}
}

// nest makes a tree deeper than any path may be long, and returns its depth.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, "deeper", 0o700)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, "deeper", unix.O_DIRECTORY, 0)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeepTree(t *testing.T) {
	t.Parallel()
	s := open(t, Limits{})
	w := prepare(t, s, "job.1", newRepo(t))
	nest(t, w.Dir(), 5000)
	if over := collect(t, w).Over; over == nil || len(over.Error()) > 400 {
		t.Errorf("collect: got %v, want a short LimitError", over)
	}
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	nothingLeft(t, s)
}

func TestCloseKeepsTheUsersDirectory(t *testing.T) {
	t.Parallel()
	for _, repo := range []string{newRepo(t), t.TempDir()} {
		write(t, repo, "mine", "x")
		before := listing(t, repo)
		w := prepareAs(t, open(t, Limits{}), "job.1", jobs.Repo{URL: repo}, jobs.IsolationNone)
		if w.Dir() != repo {
			t.Errorf("got directory %s, want %s", w.Dir(), repo)
		}
		collect(t, w)
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if after := listing(t, repo); after != before {
			t.Errorf("got\n%s\nwant\n%s", after, before)
		}
	}
}

func TestSkippedIsBounded(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), "for i in $(seq 1 150); do mkfifo p$i; done")
	if got := collect(t, w).Skipped; len(got) != 101 || got[100] != "and 50 more" {
		t.Errorf("got %d lines, the last %q", len(got), got[len(got)-1])
	}
}

func TestNotable(t *testing.T) {
	t.Parallel()
	w := prepare(t, open(t, Limits{}), "job.1", newRepo(t))
	sh(t, w.Dir(), `mkdir -p .github/workflows .husky web sub/.claude; echo x > .github/workflows/ci.yml; echo x > .husky/pre-commit
echo x > web/package.json; echo x > sub/.claude/settings.json; ln -s /etc/passwd l; chmod +x README; echo x > .gitattributes; echo x > plain.txt; mkdir .vscode .claude
touch .envrc .zshenv .bash_login .vscode/tasks.json .claude/settings.local.json conftest.py; rm Makefile 2>/dev/null || true; echo x > "Makefile"`)
	got := strings.Join(collect(t, w).Notable, "\n")
	for _, want := range []string{".github/workflows/ci.yml", ".husky/pre-commit", "web/package.json", "sub/.claude/settings.json", "l: symbolic link", "README: executable", ".gitattributes", "Makefile",
		".envrc", ".zshenv", ".bash_login", ".vscode/tasks.json", ".claude/settings.local.json", "conftest.py"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %s in it", got, want)
		}
	}
	if strings.Contains(got, "plain.txt") {
		t.Errorf("got %q, want no plain.txt", got)
	}
}

// What is over a limit is left out by name, and everything else is collected; a
// file of the base that is left out is not taken for deleted.
func TestWhatIsWithinTheLimitsIsCollected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		limits       Limits
		files        int
		left         string
	}{
		{"bytes", "head -c 5000 /dev/zero > big; echo x > a; echo x > z; head -c 5000 /dev/zero > README", Limits{Bytes: 4000}, 2, "README"},
		{"files", "for i in 1 2 3 4 5; do echo x > n$i; done", Limits{Files: 4}, 4, "n5"},
		{"depth", "mkdir -p $(seq -s/ 1 11); echo x > $(seq -s/ 1 10)/in; echo x > $(seq -s/ 1 11)/out; echo x > a; rm README", Limits{Depth: 10}, 3, "1/2/3/4/5/6/7/8/9/10/11"},
		{"depth of an ignored directory", "mkdir -p out/$(seq -s/ 1 130); head -c 30000000 /dev/zero > out/big; echo x > a", Limits{}, 1, ""},
		{"patch", "head -c 50000 /dev/urandom | base64 > big; echo x > a", Limits{Patch: 10000}, 1, "big"},
		{"entries", "mkdir e; cd e; for i in 1 2 3 4 5 6 7 8 9 10; do : > $i; done", Limits{Entries: 30}, 10, "tools"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := prepare(t, open(t, c.limits), "job.1", newRepo(t))
			sh(t, w.Dir(), c.script)
			change := collect(t, w)
			if change.Files != c.files || (c.left == "") != (change.Over == nil) || !strings.Contains(strings.Join(change.Skipped, "\n"), c.left) {
				t.Errorf("collected %d files, left out %q (%v); want %d files without %s", change.Files, change.Skipped, change.Over, c.files, c.left)
			}
		})
	}
}

// Of what is kept whole the oldest goes first, for its age or for the room.
func TestWhatIsKeptWholeGoes(t *testing.T) {
	now := time.Now()
	old := func(days int, bytes int64) changes.LimitError {
		return changes.LimitError{Since: now.Add(-time.Duration(days) * 24 * time.Hour), Bytes: bytes}
	}
	kept := map[string]changes.LimitError{"older": old(3, 40), "old": old(2, 40), "new": old(1, 40), "ancient": old(8, 1)}
	got := overdue(kept, Limits{WholeAge: 7 * 24 * time.Hour, WholeBytes: 100}, now)
	if len(got) != 2 || !got["ancient"] || !got["older"] {
		t.Errorf("gone are %v, want the ancient and the older one", got)
	}
	if got := overdue(kept, Limits{WholeAge: -1, WholeBytes: -1}, now); len(got) != 4 {
		t.Errorf("where none is kept %v go, want all", got)
	}
}

// A workspace that was kept whole is shown by a sweep and left there, until it is
// spent; discard gives it up before.
func TestASweepLeavesWhatIsKeptWhole(t *testing.T) {
	for _, spent := range []bool{false, true} {
		s := open(t, Limits{Bytes: 4000})
		w := prepare(t, s, "job.1", newRepo(t))
		sh(t, w.Dir(), "head -c 5000 /dev/zero > big; echo x > a")
		change := collect(t, w)
		whole := w.Whole(t.Context(), change.Over)
		if err := errors.Join(w.KeepWhole(whole), w.Close()); err != nil {
			t.Fatal(err)
		}
		if spent {
			s.cfg.Limits.WholeAge = -1
		}
		swept, err := s.Sweep(t.Context())
		kept, _ := errors.AsType[*changes.LimitError](swept.Kept["job.1"])
		if err != nil || (kept == nil) != spent || (len(swept.Workspaces) == 1) != spent {
			t.Errorf("swept %+v, %v; spent: %v", swept, err, spent)
		}
		if spent {
			nothingLeft(t, s)
			continue
		}
		if _, err := os.Stat(filepath.Join(kept.Dir, "big")); err != nil || kept.Bytes < 5000 {
			t.Errorf("kept %+v: %v", kept, err)
		}
		lost, why, err := s.Discard(t.Context(), "job.1", false)
		if err != nil || why == nil || !strings.Contains(strings.Join(lost, "\n"), "big") {
			t.Errorf("discarded: lost %v, because %v, %v", lost, why, err)
		}
		nothingLeft(t, s)
	}
}
