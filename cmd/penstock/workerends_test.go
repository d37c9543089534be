package main

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A worker that was started for one job does one, however many slots it has, and ends. One
// that finds nothing to do ends, too.
func TestAWorkerEndsByItself(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "0")
	for range 2 {
		f.submit("sleep 1")
	}
	once := f.worker("--slots", "2", "--max-jobs", "1")
	if code := f.ended(once, 60*time.Second); code != 0 {
		t.Errorf("after its job the worker ended with %d", code)
	}
	if got := f.states(); got[jobs.Finished] != 1 || got[jobs.Pending] != 1 {
		t.Errorf("the jobs are %v, want one that is finished and one that waits", got)
	}
	idle := f.worker("--slots", "1", "--idle-timeout", "500ms")
	if code := f.ended(idle, 60*time.Second); code != 0 {
		t.Errorf("without a job the worker ended with %d", code)
	}
	if got := f.states(); got[jobs.Finished] != 2 {
		t.Errorf("the jobs are %v: the worker ended before it had none", got)
	}
	f.refused(2, []string{"--max-jobs: -1 is less than 0"}, "worker", "--max-jobs", "-1")
}
