package cover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The devices work, the jail cannot add one, and memory ends where it should. The
// host's terminals are not among them.
func TestDevices(t *testing.T) {
	dir := t.TempDir()
	namespace, told := elsewhere(t, dir, "cd dev; ls; echo x > null && echo null; head -c 2 zero | tr '\\0' z; echo; echo x > full || echo full; "+
		"head -c 8 urandom | wc -c; exec 3<>ptmx && ls pts; for f in new sub/new pts/new; do echo x > $f || echo fixed; done; "+
		"echo x > shm/f && cat shm/f; head -c 20000 zero > shm/g || echo limited; readlink core; stat -c %a . null pts/ptmx shm")
	if err := os.Mkdir(filepath.Join(dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := Cover{Devices: Devices{Path: filepath.Join(dir, "dev"), Names: []string{"null", "zero", "full", "urandom"}, Links: [][2]string{{"ptmx", "pts/ptmx"}, {"core", "/proc/kcore"}}, Shared: 16 << 10}}
	if err := c.Begin().Apply(namespace); err != nil {
		t.Fatal(err)
	}
	want := "core full null ptmx pts shm urandom zero null zz full 8 0 ptmx fixed fixed fixed x limited " +
		"/proc/kcore 755 666 666 1777"
	if got := told(); got != want {
		t.Errorf("there: %q\nwant:   %q", got, want)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "dev")); err != nil || len(entries) > 0 {
		t.Errorf("here: %v, err %v", entries, err)
	}
}

// What could not be made is named.
func TestDevicesThatCannotBe(t *testing.T) {
	if !Possible() {
		t.Skip("only root, with its capabilities, can mount")
	}
	for want, d := range map[string]Devices{
		"make /dev: fsconfig tmpfs: ": {Path: "/dev", Shared: -1},
		"make /dev: device absent: ":  {Path: "/dev", Names: []string{"absent"}},
	} {
		if err := (Cover{Devices: d}).Begin().Close(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
