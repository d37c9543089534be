package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// What is marked immutable or append-only goes, too, where we may take the
// marks away; and what cannot be deleted keeps neither the rest nor a sweep.
func TestImmutableIsRemoved(t *testing.T) {
	t.Parallel()
	s := open(t, Limits{})
	w := prepare(t, s, "job.1", newRepo(t))
	sh(t, w.Dir(), "mkdir -p i/x a; touch i/f i/x/g a/f a/b")
	for name, flag := range map[string]int{"i/f": 0x10, "i/x": 0x10, "i": 0x10, "a/f": 0x20, "a": 0x20} {
		f, err := os.Open(filepath.Join(w.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flag)
		// Wherever it is then, and if it is still there.
		t.Cleanup(func() { _ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); f.Close() })
		if err != nil {
			t.Skipf("nothing can be marked here: %v", err)
		}
	}
	if err := os.RemoveAll(filepath.Join(w.Dir(), "i")); err == nil {
		t.Fatal("the marks mean nothing here")
	}
	if err := w.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	nothingLeft(t, s)
}

func TestWhatCannotBeDeletedIsInNobodysWay(t *testing.T) {
	s := open(t, Limits{})
	busy := filepath.Join(s.trash.Dir, "a-busy", "d")
	if os.Getuid() != 0 {
		t.Skip("only root can mount here")
	}
	if err := os.MkdirAll(busy, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("penstock-test", busy, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("nothing can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(busy, 0) }) // unless it is done already
	write(t, s.trash.Dir, "b/f", "x")
	write(t, s.homes.dir("gone.1"), "workspace/f", "x")
	swept, err := s.Sweep(t.Context())
	if err != nil || swept.Undeleted == nil || len(swept.Workspaces) != 1 {
		t.Errorf("swept %+v, %v; want one workspace and an entry that stays", swept, err)
	}
	if left, err := disk.Names(s.trash.Dir); err != nil || len(left) != 1 {
		t.Errorf("the trash has %v, %v", left, err)
	}
	if err := unix.Unmount(busy, 0); err != nil {
		t.Fatal(err)
	}
	if swept, err := s.Sweep(t.Context()); err != nil || swept.Undeleted != nil {
		t.Errorf("then: %+v, %v", swept, err)
	}
	nothingLeft(t, s)
}
