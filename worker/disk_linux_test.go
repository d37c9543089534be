package worker

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A disk that fails while the result is collected is the host's fault: a job
// with one attempt goes on when it is well again.
func TestADiskThatFailsIsNotTheAgents(t *testing.T) {
	t.Parallel()
	requireJail(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can make a disk read-only")
	}
	b := &breaker{field: newField(t)}
	b.Cleanup(b.mended)
	first := true
	b.cfg.Hooks.Stage = func(_ jobs.Record, stage string, _ time.Duration) {
		if stage == "agent" && first {
			first = false
			b.mu.Lock()
			b.mend = b.readOnly("jobs/*")
			b.mu.Unlock()
		}
	}
	stop := b.work()
	defer stop()
	job := b.job("echo hello > new.txt")
	job.Retry.MaxAttempts = 1
	id := b.submit(job).ID
	var rec jobs.Record
	b.until("the attempt ends", func() (over bool) {
		var err error
		rec, err = b.eye.queue.Get(b.Context(), id)
		return err == nil && rec.Attempt > 0 && rec.State != jobs.Executing
	})
	if rec.Reason != jobs.WorkspaceFailed || rec.State == jobs.Finished {
		t.Errorf("the attempt ended as %s %s (%s), want it tried again for %s", rec.State, rec.Reason, rec.Message, jobs.WorkspaceFailed)
	}
	b.mended()
	b.salvagedLater(id)
	if rec, events := b.ended(id); rec.Outcome != jobs.Success {
		t.Errorf("the job ended as %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}

// readOnly makes a directory that matches a pattern in the workspaces' directory
// read-only, until it is repaired.
func (b *breaker) readOnly(pattern string) (mend func()) {
	found, err := filepath.Glob(filepath.Join(b.dir, pattern))
	if err != nil || len(found) != 1 {
		b.Errorf("%s: %v, %v", pattern, found, err)
		return nil
	}
	dir := found[0]
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		b.Error(err)
		return nil
	}
	if err := syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		b.Error(err)
	}
	return func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			b.Error(err)
		}
	}
}
