package mounttest

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Overlay mounts an overlay of two file systems until the test ends, as containers have for a
// root: files there say that they are on another device than their directories.
func Overlay(t testing.TB) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount an overlay of two file systems")
	}
	base := t.TempDir()
	mount := func(name, kind, options string) string {
		at := filepath.Join(base, name)
		err := os.Mkdir(at, 0o755)
		if err == nil {
			err = unix.Mount("penstock-test", at, kind, 0, options)
		}
		if err != nil {
			t.Skipf("cannot mount %s: %v", kind, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		return at
	}
	lower, upper := mount("lower", "tmpfs", "size=64m"), mount("upper", "tmpfs", "size=64m")
	for _, name := range []string{"files", "work"} {
		if err := os.Mkdir(filepath.Join(upper, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return mount("root", "overlay", "xino=off,lowerdir="+lower+",upperdir="+upper+"/files,workdir="+upper+"/work")
}
