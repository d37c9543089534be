package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// A worker that is killed loses nothing: another one has its jobs within
// fifteen seconds, its agents are gone, and each job has one result.
func TestAKilledWorkersJobsGoOnElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	first := f.worker("--slots", "4", "--name", "first")
	var ids []string
	for i := range 4 {
		ids = append(ids, f.submit(fmt.Sprintf("echo begun; %s; echo %d > new.txt", onlyFirst, i)))
	}
	for _, id := range ids {
		f.eventually(20*time.Second, "job "+id+" runs", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
	}
	first.kill()
	f.eventually(60*time.Second, "the killed worker's agents are gone", func() bool { return len(jailed(f.data)) == 0 })
	f.worker("--slots", "4", "--name", "second")
	for _, id := range ids {
		f.eventually(60*time.Second, "job "+id+" is claimed again", func() bool {
			rec := f.record(id)
			return rec.Attempt == 2 && rec.Worker == "second" || rec.State == jobs.Finished
		})
	}
	f.run(append([]string{"wait", "--timeout", patience(60)}, ids...)...)
	for _, id := range ids {
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			t.Errorf("job %s finished %d times", id, got)
		}
		if rec := f.record(id); rec.Outcome != jobs.Success || rec.Lost != 1 || rec.Counted != 0 {
			t.Errorf("job %s: %s, lost %d, counted %d; want success, 1, 0", id, rec.Outcome, rec.Lost, rec.Counted)
		}
	}
	if left := f.workspaces(); len(left) > 0 {
		t.Errorf("workspaces are left: %v", left)
	}
}

// A worker that sleeps past its lease and wakes again finds that it may do
// nothing any more: its agent ends and its result is refused.
func TestASleepingWorkerIsFenced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	first := f.worker("--slots", "1", "--name", "sleeper", "--log-level", "info")
	id := f.submit("echo begun; " + onlyFirst + "; sleep 4; echo from $PENSTOCK_ATTEMPT > new.txt")
	f.eventually(20*time.Second, "the job runs", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
	exectest.Pause(t, first.Process)
	f.worker("--slots", "1", "--name", "heir")
	f.eventually(60*time.Second, "the job is claimed again", func() bool { return f.record(id).Attempt == 2 })
	f.must(first.Process.Signal(syscall.SIGCONT))
	f.eventually(60*time.Second, "the sleeper notices", func() bool { return strings.Contains(first.log.String(), "lease lost") })
	f.run("wait", "--timeout", patience(60), id)
	events := f.events(id)
	f.gapless(events)
	if got := count(events, jobs.JobFinished); got != 1 {
		t.Errorf("finished %d times", got)
	}
	for _, e := range events {
		if e.Kind == jobs.JobFinished && e.Attempt > 1 {
			continue
		}
		if e.Attempt == 1 && e.Kind == jobs.RunExited {
			t.Errorf("the fenced attempt still published %s", e.Kind)
		}
	}
	if patch := f.run("job", "diff", id); !strings.Contains(patch, "+from 2") {
		t.Errorf("the result is not the heir's:\n%s", patch)
	}
}

// A drained worker hands back what it could not finish, at no cost.
func TestADrainedWorkerHandsItsJobsBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	first := f.worker("--slots", "2", "--name", "first", "--drain", "1s")
	id := f.submit("echo begun; "+onlyFirst+"; echo done > new.txt", "--max-attempts", "1")
	f.eventually(20*time.Second, "the job runs", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
	f.must(first.Process.Signal(syscall.SIGTERM))
	if err := first.Wait(); err != nil {
		t.Errorf("a drained worker ended with %v", err)
	}
	if rec := f.record(id); rec.State != jobs.Pending || rec.Counted != 0 {
		t.Errorf("after the drain: %s, counted %d; want pending, 0", rec.State, rec.Counted)
	}
	f.worker("--slots", "2", "--name", "second")
	f.run("wait", "--timeout", patience(30), id)
	f.gapless(f.events(id))
}

// The broker and its dispatcher die in the middle of a batch and are started
// again: nothing that was accepted is lost.
func TestAKilledServerLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve()
	f.worker("--slots", "3", "--name", "w")
	file := filepath.Join(t.TempDir(), "jobs.jsonl")
	var lines strings.Builder
	for i := range 12 {
		fmt.Fprintf(&lines, `{"item":"job-%d","agent":{"name":"command","command":["sh","-c","sleep 1; echo %d > new.txt"]}}`+"\n", i, i)
	}
	f.must(os.WriteFile(file, []byte(lines.String()), 0o644))
	out := filepath.Join(t.TempDir(), "results")
	batch := f.begin("batch", "run", file, "--repo", f.repo, "--out", out, "--max-parallel", "6")
	f.eventually(30*time.Second, "some items are done", func() bool { return strings.Count(batch.log.String(), "success") >= 3 })
	serve.kill()
	time.Sleep(time.Second)
	f.start("serving", args...)
	if code := f.ended(batch, 90*time.Second); code != 0 {
		t.Fatalf("batch run ended with %d", code)
	}
	if got := readResults(t, out); len(got) != 12 {
		t.Errorf("got %d results, want 12", len(got))
	}
}

// readResults reads a results directory and fails on any item that is not a
// success, or is there twice.
func readResults(t *testing.T, dir string) map[string]jobs.Result {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "results.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]jobs.Result{}
	for line := range strings.Lines(string(data)) {
		var r jobs.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, twice := found[r.ID]; twice || r.Outcome != jobs.Success {
			t.Errorf("item %s: twice %v, %s %s %s", r.ID, twice, r.Outcome, r.Reason, r.Message)
		}
		found[r.ID] = r
	}
	return found
}
