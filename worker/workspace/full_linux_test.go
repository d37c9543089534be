package workspace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/jobs"
)

// A disk that is full at one step after the other: each time the error says
// so, nothing is left, and the cache is not harmed.
func TestDiskIsFull(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	repo := newRepo(t)
	sh(t, repo, "head -c 400000 /dev/urandom > data; git add data; git commit -qm data")
	dir := t.TempDir()
	if err := unix.Mount("penstock-test", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	refused := 0
	for size := 64; ; size += 96 {
		if size > 20000 {
			t.Fatal("no size is enough")
		}
		if err := unix.Mount("", dir, "", unix.MS_REMOUNT, fmt.Sprintf("size=%dk", size)); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Dir: dir})
		if err == nil {
			err = fillDisk(t, s, repo)
		}
		if err == nil {
			break
		}
		refused++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with %d KiB: got %v, want ENOSPC in it", size, err)
		}
		if s != nil {
			if _, err := s.Sweep(t.Context()); err != nil {
				t.Errorf("with %d KiB: sweep: %v", size, err)
			}
			nothingLeft(t, s)
		}
	}
	if refused < 5 {
		t.Errorf("the disk was full %d times only", refused)
	}
}

func fillDisk(t *testing.T, s *Spaces, repo string) (err error) {
	t.Helper()
	w, err := s.Prepare(t.Context(), Request{ID: "job.1", Repo: jobs.Repo{URL: repo}, Isolation: jobs.IsolationWorktree})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.remove()) }()
	if err := os.WriteFile(filepath.Join(w.Dir(), "new"), make([]byte, 200000), 0o644); err != nil {
		return err
	}
	c, err := w.Collect(t.Context())
	if err == nil && c.Files != 1 {
		err = fmt.Errorf("got %d files", c.Files)
	}
	return err
}
