package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

func (f *fixture) batches() []operation.Batch {
	f.Helper()
	var list []operation.Batch
	f.must(json.Unmarshal([]byte(f.run("batch", "ls", "-o", "json")), &list))
	return list
}

// A paused batch starts no more jobs, does not block others, and continues where it
// was; a cancelled one ends, and can be started again.
func TestPauseResumeAndCancelABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	file := f.issues(4, func(int) string { return "" })
	out, gate := filepath.Join(t.TempDir(), "out"), filepath.Join(f.repo, "go")
	work := []string{"batch", "run", file, "--repo", f.repo, "--isolation", "none", "--out", out, "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.1; done"}
	b := f.begin(work...)
	f.eventually(30*time.Second, "one job runs, three wait", func() bool {
		list := f.batches()
		return len(list) == 1 && list[0].States[jobs.Executing] == 1 && list[0].States[jobs.Pending] == 3
	})
	id := f.batches()[0].Batch
	if told := f.run("batch", "pause", out); !strings.Contains(told, id) {
		t.Errorf("pause says %q, want the batch %s", told, id)
	}
	f.must(os.WriteFile(gate, nil, 0o644))
	f.eventually(30*time.Second, "the running job ends, the others are parked", func() bool {
		s := f.batches()[0]
		return s.Outcomes[jobs.Success] == 1 && s.States[jobs.Waiting] == 3 && s.Paused != nil
	})
	f.run("wait", "--timeout", patience(30), f.submit("true")) // a job of another batch
	if s := f.batches()[0]; s.States[jobs.Waiting] != 3 {
		t.Errorf("the paused batch went on: %+v", s)
	}
	f.run("batch", "resume", id)
	if code := f.ended(b, 60*time.Second); code != 0 {
		t.Errorf("the batch ended with %d: %s", code, b.log)
	}

	other := filepath.Join(t.TempDir(), "other")
	work = []string{"batch", "run", file, "--repo", f.repo, "--isolation", "none", "--out", other, "--max-parallel", "2", "--",
		"sh", "-c", "while [ ! -e again ]; do sleep 0.1; done"}
	b = f.begin(work...)
	f.eventually(30*time.Second, "a job runs", func() bool { return len(f.batches()) == 2 && f.batches()[1].States[jobs.Executing] == 1 })
	f.run("batch", "cancel", other)
	// Also the two that it had not submitted then.
	if code := f.ended(b, 60*time.Second); code != 3 || !strings.Contains(b.log.String(), "batch failed: 4 of 4 done: 4 cancellation") {
		t.Errorf("the cancelled batch ended with %d: %s", code, b.log)
	}
	f.must(os.WriteFile(filepath.Join(f.repo, "again"), nil, 0o644))
	f.run(append([]string{"batch", "run", "--redo", "all"}, work[2:]...)...)
	f.refused(5, []string{"no-such-batch"}, "batch", "cancel", "no-such-batch")
}

// A worker tells what it is doing, and the answer follows it: to the command
// line and to a client of the bus alike.
func TestWhyFollowsTheWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "0")
	first := f.submit("while [ ! -e go ]; do sleep 0.1; done", "--isolation", "none")
	second := f.submit("true")
	f.whyIs(first, why.KeptNoWorker)
	w := f.worker("--slots", "1", "--name", "one")
	if got := f.whyIs(first, why.KeptExecuting); got.Worker != "one" {
		t.Errorf("%+v, want worker one", got)
	}
	third := f.submit("true", "--need", "gpu")
	if got := f.whyIs(third, why.KeptNeeds); !strings.Contains(got.Change, "--labels gpu") {
		t.Errorf("%+v, want it to say how to start a worker that has gpu", got)
	}
	f.whyIs(second, why.KeptSlots) // once the worker has reported that its slot is used
	answer, err := f.bus().Request("penstock.v1.api.why", []byte(`{"id":"`+second+`"}`), 10*time.Second)
	f.must(err)
	var got why.Standing
	f.must(json.Unmarshal(answer.Data, &got))
	if got.Constraint != why.KeptSlots || got.Position != 1 || got.Slots != 1 {
		t.Errorf("the bus says %s, want number 1 for a busy slot", answer.Data)
	}
	f.must(w.Process.Signal(os.Interrupt)) // hands the first one back, and leaves
	f.ended(w, 30*time.Second)
	f.whyIs(second, why.KeptNoWorker)
	f.must(os.WriteFile(filepath.Join(f.repo, "go"), nil, 0o644))
	f.worker("--slots", "1", "--labels", "docker,gpu", "--name", "two")
	f.run("wait", "--timeout", patience(60), first, second, third)
	if rec := f.record(third); rec.Attempt != 1 || rec.Lost != 0 {
		t.Errorf("the job that needs gpu took %d attempts, %d lost", rec.Attempt, rec.Lost)
	}
	f.whyIs(second, why.KeptFinished)
}

func TestPauseAQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	f.run("queue", "pause", "default", "--for", "1h")
	id := f.submit("true")
	if _, code, _ := f.try("wait", "--timeout", "1s", id); code != 8 {
		t.Errorf("wait ended with %d, want 8: the queue is paused", code)
	}
	var list []operation.Queue
	f.must(json.Unmarshal([]byte(f.run("queue", "ls", "-o", "json")), &list))
	if len(list) != 1 || list[0].Pending != 1 || list[0].Paused == nil || list[0].Paused.Until == nil {
		t.Errorf("queues %+v, want one, paused for an hour", list)
	}
	f.run("queue", "resume", "default")
	f.run("wait", "--timeout", patience(30), id)
	f.refused(2, []string{"*"}, "queue", "pause", "*")
}

// whyIs waits until why names what keeps a job.
func (f *fixture) whyIs(id string, want why.Constraint) (got why.Standing) {
	f.Helper()
	f.eventually(30*time.Second, id+" is kept by "+string(want), func() bool {
		f.must(json.Unmarshal([]byte(f.run("why", id, "-o", "json")), &got))
		return got.Constraint == want
	})
	return got
}

// A worker that has been told to end claims nothing, whatever slots are free
// while its last job ends: why says so, and not that it is about to claim.
func TestWhyOfAWorkerThatShutsDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "0")
	w := f.worker("--slots", "2", "--name", "one", "--drain", patience(120))
	last := f.submit("while [ ! -e go ]; do sleep 0.1; done", "--isolation", "none")
	f.whyIs(last, why.KeptExecuting)
	f.must(w.Process.Signal(syscall.SIGTERM))
	id := f.submit("true")
	if got := f.whyIs(id, why.KeptClosed); !strings.Contains(got.Message, "one: it shuts down") {
		t.Errorf("%+v, want it to say that worker one shuts down", got)
	}
	f.whyIs(last, why.KeptExecuting)
	f.must(os.WriteFile(filepath.Join(f.repo, "go"), nil, 0o644))
	f.ended(w, 30*time.Second)
	f.whyIs(id, why.KeptNoWorker)
	if rec := f.record(last); rec.Outcome != jobs.Success || rec.Attempt != 1 {
		t.Errorf("the last job of the worker is %s, %s after %d attempts", rec.State, rec.Outcome, rec.Attempt)
	}
}
