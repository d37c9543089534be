package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// small mounts a disk of that many MiB at a directory, to be filled.
func (f *field) small(dir string, mib int) {
	f.Helper()
	f.must(os.MkdirAll(dir, 0o700))
	if err := syscall.Mount("penstock-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		f.Skipf("no small disk can be mounted: %v", err)
	}
	f.Cleanup(func() { f.must(syscall.Unmount(dir, 0)) })
}

// A workspace that fills the disk ends its own job with that reason, and the
// next one has the disk again.
func TestAFullWorkspace(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.small(filepath.Join(f.data, "work"), 48)
	f.serve("--slots", "1")
	// The agent leaves less room than its result needs to be collected.
	id := f.submit("head -c 40000000 /dev/urandom >big.bin", "--max-attempts", "1")
	_, code, told := f.try("wait", "--timeout", "60s", id)
	if rec := f.record(id); code != 4 || rec.Reason != jobs.DiskFull || !strings.Contains(told, "free space") {
		t.Errorf("exit code %d, reason %s: %s", code, rec.Reason, told)
	}
	f.gapless(f.events(id))
	f.eventually(10*time.Second, "its workspace is removed", func() bool { return len(f.workspaces()) == 0 })
	f.run("wait", "--timeout", "30s", f.submit("echo fits >new.txt"))
}

// A broker without room refuses what is new, and says so; what is accepted
// already ends once there is room again.
func TestAFullBroker(t *testing.T) {
	t.Parallel()
	f := newField(t)
	store := filepath.Join(f.data, "nats")
	f.small(store, 64)
	f.serve("--slots", "1")
	running := f.submit("echo begun; sleep 5; echo done >new.txt")
	waiting := f.submit("true")
	f.runs(running)
	ballast := filepath.Join(store, "ballast")
	var disk syscall.Statfs_t
	f.must(syscall.Statfs(store, &disk))
	f.must(os.WriteFile(ballast, make([]byte, int64(disk.Bavail)*disk.Bsize-1<<20), 0o600))
	submit := []string{"submit", "-o", "id", "--repo", f.repo, "--", "true"}
	f.eventually(20*time.Second, "a submission is refused", func() bool {
		_, code, told := f.try(submit...)
		if code != 0 && !strings.Contains(told, "storage") && !strings.Contains(told, "disk") && !strings.Contains(told, "space") {
			t.Errorf("it is refused with %d and no reason: %s", code, told)
		}
		return code != 0
	})
	time.Sleep(3 * time.Second) // the running job meets the full disk as well
	f.must(os.Remove(ballast))
	f.eventually(30*time.Second, "submissions are taken again", func() bool { _, code, _ := f.try(submit...); return code == 0 })
	f.run("wait", "--timeout", "90s", running, waiting)
	for _, id := range []string{running, waiting} {
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			t.Errorf("job %s finished %d times", id, got)
		}
	}
	if patch := f.run("job", "diff", running); !strings.Contains(patch, "+done") {
		t.Errorf("the patch of the running job is\n%s", patch)
	}
}
