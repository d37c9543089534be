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
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

// workerIs is what a worker says of itself.
func (f *fixture) workerIs(name string) (w why.Worker) {
	f.Helper()
	f.must(json.Unmarshal([]byte(f.run("worker", "get", name, "-o", "json")), &w))
	return w
}

// executes waits until a worker holds a job.
func (f *fixture) executes(id, worker string) {
	f.Helper()
	f.eventually(30*time.Second, worker+" runs "+id, func() bool {
		rec := f.record(id)
		return rec.State == jobs.Executing && rec.Worker == worker
	})
}

// A worker that is drained finishes what it runs and claims nothing more, also after a
// kill of the broker with the dispatcher in it, until it is resumed.
func TestAWorkerIsDrainedAndResumed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.env = append(f.env, "PENSTOCK_LEASE=1m") // the job outlives the restart, however slow the host is
	serve, args := f.serve("--slots", "0")
	f.worker("--slots", "2", "--name", "one", "--labels", "first")
	running := f.submit("while [ ! -e go ]; do sleep 0.1; done", "--isolation", "none")
	f.executes(running, "one")
	two := f.worker("--slots", "1", "--name", "two")

	f.run("worker", "drain", "--label", "first")
	drained := f.workerIs("one")
	if drained.State != why.WorkerDraining || !drained.Drain.Confirmed || drained.Drain.By != "cli" || drained.Drain.Ends || drained.Busy != 1 {
		t.Errorf("got %+v, want that it drains with one job", drained)
	}
	f.run("worker", "drain", "one")
	if again := f.workerIs("one"); !again.Drain.At.Equal(drained.Drain.At) {
		t.Errorf("a second request began a second drain: %v and %v", drained.Drain, again.Drain)
	}
	serve.kill()
	f.start("serving", args...)
	for range 3 {
		id := f.submit("true")
		f.run("wait", "--timeout", patience(60), id)
		if worker := f.result(id).Worker; worker != "two" {
			t.Errorf("worker %s ran %s while one drains", worker, id)
		}
	}
	wait := f.begin("worker", "drain", "one", "--wait")
	f.eventually(20*time.Second, "drain says what it waits for", func() bool { return strings.Contains(wait.log.String(), "jobs left: 1") })
	f.must(os.WriteFile(filepath.Join(f.repo, "go"), nil, 0o644))
	if code := f.ended(wait, 60*time.Second); code != 0 || f.workerIs("one").Busy != 0 {
		t.Errorf("drain --wait ended with %d, and %+v: %s", code, f.workerIs("one"), wait.log)
	}
	if res := f.result(running); res.Outcome != jobs.Success || res.Worker != "one" || f.record(running).Attempt != 1 {
		t.Errorf("the job of the worker that drains became %+v", res)
	}

	f.must(two.Process.Signal(syscall.SIGTERM))
	f.ended(two, 30*time.Second)
	next := f.submit("true")
	if got := f.whyIs(next, why.KeptClosed); !strings.Contains(got.Message, "it drains, as cli asked") {
		t.Errorf("why says %q, want that the worker drains", got.Message)
	}
	f.run("worker", "resume", "one")
	f.run("wait", "--timeout", patience(60), next)
}

// What is asked of a worker that does not listen is not lost with the process that was
// asked, and does not outlive the worker's process.
func TestARequestToDrainIsKept(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "0")
	one := f.worker("--slots", "1", "--name", "one")
	f.eventually(20*time.Second, "the worker is known", func() bool { return f.run("worker", "ls", "-o", "id") == "one\n" })
	exectest.Pause(t, one.Process)
	c, err := client.Open(t.Context(), f.bus(), client.Config{By: "test"})
	f.must(err)
	if w, err := c.Worker("one").Drain(t.Context()); err != nil || w.State != why.WorkerAvailable || w.Drain == nil || w.Drain.Confirmed || w.Drain.By != "test" {
		t.Errorf("got %+v, %v, want a drain that is not confirmed", w, err)
	}
	if out := f.run("worker", "ls"); !strings.Contains(out, "test asked it to drain, which it has not confirmed") {
		t.Errorf("worker ls shows nothing of the request:\n%s", out)
	}
	serve.kill()
	f.start("serving", args...)
	f.must(one.Process.Signal(syscall.SIGCONT))
	f.eventually(30*time.Second, "the worker drains", func() bool {
		out, _, _ := f.try("worker", "ls")
		return strings.Contains(out, "it drains, as test asked")
	})

	f.must(one.Process.Signal(syscall.SIGTERM))
	f.ended(one, 30*time.Second)
	f.refused(5, []string{`there is no worker "one" that is alive`, "worker ls"}, "worker", "resume", "one")
	f.worker("--slots", "1", "--name", "one")
	f.run("wait", "--timeout", patience(60), f.submit("true"))
	f.eventually(30*time.Second, "the worker that was started again is available", func() bool { // it tells a moment later that the job is over
		w := f.workerIs("one")
		return w.State == why.WorkerAvailable && w.Drain == nil
	})
	f.refused(5, []string{"did you mean one?"}, "worker", "drain", "onne")
	f.refused(5, []string{"no worker is alive that this selects"}, "worker", "drain", "--label", "gpu")
	f.refused(2, []string{"--all"}, "worker", "drain")
	f.refused(2, []string{"--all"}, "worker", "resume", "one", "--all")
	f.refused(2, []string{"unknown command"}, "worker", "drian")
}

// A worker that shuts down drains in the same way, and cannot be resumed. A drain is no
// end of its process, and health and metrics show it.
func TestHealthOfAWorkerThatDrains(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "0")
	one := f.start("slots on", "worker", "--admin", "127.0.0.1:0", "--slots", "1", "--drain", "1m", "--name", "one")
	_, address, _ := strings.Cut(one.log.String(), "metrics at ")
	address = strings.TrimSuffix(strings.TrimSpace(address), "/metrics")
	is := func(ready, metric string) {
		t.Helper()
		if got := f.page(address + "/readyz?verbose"); !strings.Contains(got, ready) {
			t.Errorf("readyz says %q, want %q", got, ready)
		}
		if got := f.page(address + "/metrics"); !strings.Contains(got, "\npenstock_worker_draining "+metric+"\n") {
			t.Errorf("the metric is not %s", metric)
		}
	}
	running := f.submit("while [ ! -e go ]; do sleep 0.1; done", "--isolation", "none")
	f.executes(running, "one")
	is("[+] draining", "0")
	f.run("worker", "drain", "--all")
	is("[-] draining: it drains, as cli asked", "1")
	f.run("worker", "resume", "--all")
	is("[+] draining", "0")
	f.must(one.Process.Signal(syscall.SIGTERM))
	f.eventually(20*time.Second, "it drains by the signal", func() bool { return f.workerIs("one").State == why.WorkerDraining })
	is("[-] draining: it shuts down", "1")
	if d := f.workerIs("one").Drain; d.By != "signal" || !d.Ends {
		t.Errorf("got %+v, want the drain of a signal", d)
	}
	f.refused(1, []string{"shuts down, which cannot be undone"}, "worker", "resume", "one")
	wait := f.start("jobs left: 1", "worker", "drain", "one", "--wait")
	f.must(os.WriteFile(filepath.Join(f.repo, "go"), nil, 0o644))
	if code := f.ended(wait, 60*time.Second); code != 0 {
		t.Errorf("drain --wait of a worker that ended: %d: %s", code, wait.log)
	}
	if code := f.ended(one, 60*time.Second); code != 0 {
		t.Errorf("the worker ended with %d: %s", code, one.log)
	}
}
