package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// A backup that fails is no backup, removes none, and is told: by the exit code, in the audit log and
// by doctor. When there is room again the next one succeeds.
func TestBackupWithoutRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := filepath.Join(t.TempDir(), "backups")
	f.small(dir, 24)
	f.serve("--slots", "1")
	f.run("backup", dir, "--verify")
	good, _ := f.backups(dir)
	f.run("wait", "--timeout", patience(60), f.submit("head -c 15000000 /dev/urandom >big.bin"))
	fails := func(what string, args ...string) {
		t.Helper()
		out, code, told := f.try(append([]string{"backup", dir, "--keep", "1"}, args...)...)
		if code != cli.ExitUnexpected || out != "" {
			t.Errorf("%s: %d, %s%s", what, code, out, told)
		}
		names, other := f.backups(dir)
		if other = slices.DeleteFunc(other, func(name string) bool { return name == "ballast" }); !slices.Equal(names, good) || len(other) > 0 {
			t.Errorf("%s: the directory has %q, and %q; want %q", what, names, other, good)
		}
	}
	fails("no room to verify it", "--verify")
	f.must(os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, 12<<20), 0o600))
	fails("no room to write it")
	f.must(os.Remove(filepath.Join(dir, "ballast")))
	if log := f.run("audit", "-o", "jsonl"); strings.Count(log, `"operation":"backup-failed"`) != 2 {
		t.Errorf("the audit log has\n%s", log)
	}
	found, _ := f.doctor()
	if b := found["backup"]; b.Status != "weak" || !strings.Contains(b.Detail, good[0]) || !strings.Contains(b.Detail, "failed") {
		t.Errorf("doctor says %+v", b)
	}
	every := f.start("the backups of before are kept", "backup", dir, "--every", "1s", "--keep", "1")
	f.must(syscall.Mount(smallDisk, dir, "tmpfs", syscall.MS_REMOUNT, "size=256m"))
	f.eventually(time.Minute, "the next one succeeds", func() bool {
		names, _ := f.backups(dir)
		return len(names) == 1 && names[0] != good[0]
	})
	f.must(every.Process.Signal(syscall.SIGTERM))
	_ = every.Wait() // perhaps in the middle of the next one
	if found, _ = f.doctor(); found["backup"].Status != "ok" {
		t.Errorf("doctor says %+v", found["backup"])
	}
}
