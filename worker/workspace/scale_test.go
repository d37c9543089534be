package workspace

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// TestManyAtOnce asks for a thousand overlays of a commit that is not here
// yet, before the first is given back.
func TestManyAtOnce(t *testing.T) {
	many := 1000
	if testing.Short() {
		many = 200
	}
	repo := newRepo(t)
	commit := run(t, repo, "git", "rev-parse", "HEAD")
	s := openAs(t, Overlay, Limits{})
	all, _ := atOnce(t, s, Request{Repo: jobs.Repo{URL: repo, Commit: commit}, Isolation: jobs.IsolationWorktree}, many)
	if table, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(table), s.cfg.Dir) {
		t.Errorf("the host has mounts of workspaces, err %v:\n%s", err, table)
	}
	if got := act(t, all[many-1], "git status --porcelain; git log --format=%H"); got != commit+"\n" {
		t.Errorf("got %q in the last one, want commit %s and nothing changed", got, commit)
	}
	for _, w := range all {
		if bytes, inodes := taken(t, s, w); bytes > 32<<10 || inodes > 8 {
			t.Errorf("%s takes %d bytes and %d inodes; want at most 32 KiB and 8", w.ID(), bytes, inodes)
		}
		if err := w.remove(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, s)
}

// taken measures what is on the disk of a workspace.
func taken(tb testing.TB, s *Spaces, w *Workspace) (bytes int64, inodes int) {
	tb.Helper()
	for _, path := range []string{w.home, s.homes.lockFile(w.id)} {
		b, i := size(tb, path)
		bytes, inodes = bytes+b, inodes+i
	}
	return bytes, inodes
}

// size is what is on the disk below a path.
func size(tb testing.TB, path string) (bytes int64, inodes int) {
	tb.Helper()
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		bytes, inodes = bytes+info.Sys().(*syscall.Stat_t).Blocks*512, inodes+1
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return bytes, inodes
}

// atOnce prepares many workspaces, all at the same time.
func atOnce(tb testing.TB, s *Spaces, ask Request, many int) (all []*Workspace, took time.Duration) {
	tb.Helper()
	all = make([]*Workspace, many)
	var wait sync.WaitGroup
	begin := time.Now()
	for i := range many {
		wait.Go(func() {
			mine := ask
			mine.ID = fmt.Sprintf("many.%d", i)
			var err error
			if all[i], err = s.Prepare(tb.Context(), mine); err != nil {
				tb.Error(err)
			}
		})
	}
	wait.Wait()
	took = time.Since(begin)
	if tb.Failed() {
		tb.FailNow()
	}
	return all, took
}
