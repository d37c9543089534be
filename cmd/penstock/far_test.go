package main

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// A pool whose broker is 300 ms away, and where one of twenty pieces is up to three seconds
// late, does its work: commands answer, the worker keeps its leases, and each job runs once and
// has all of its events.
func TestAFarPool(t *testing.T) {
	t.Parallel()
	// The default is 10 s, which tests shorten. Here the machine, too, is late: it runs other tests.
	lease := "PENSTOCK_LEASE=" + slowtest.Pace(25*time.Second).String()
	f := newFixture(t)
	f.env = append(f.env, lease)
	f.serve()
	endpoint, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	at, err := url.Parse(endpoint.URL)
	f.must(err)
	way, err := flaky.Listen(at.Host)
	f.must(err)
	t.Cleanup(way.Close)
	way.Move(flaky.Distance{RoundTrip: 300 * time.Millisecond, Stalls: 0.05, Shortest: time.Second, Longest: 3 * time.Second})
	far, err := url.Parse(way.URL())
	f.must(err)
	far.User = url.UserPassword(endpoint.User, endpoint.Password)
	away := newFixture(t) // has a data directory of its own, as on another host
	away.env = append(away.env, lease, "PENSTOCK_SERVER="+far.String())
	away.worker("--slots", "3")

	run := func(args ...string) string {
		t.Helper()
		began := time.Now()
		out, code, said := away.try(args...)
		t.Logf("%v: %.1f s", args[:2], time.Since(began).Seconds())
		if code != 0 {
			t.Fatalf("penstock %v ended with %d:\n%s%s", args, code, out, said)
		}
		return out
	}
	long := strings.TrimSpace(run("submit", "-o", "id", "--isolation", "none", "--", "sh", "-c", "i=0; while [ $i -lt 15 ]; do i=$((i+1)); echo line $i; sleep 1; done"))
	id := strings.TrimSpace(run("submit", "-o", "id", "--isolation", "none", "--", "sh", "-c", "for i in 1 2 3; do echo line $i; done"))
	run("wait", id)
	for command, words := range map[string]string{"logs": "line 3", "get": "success", "why": "finished"} {
		args := []string{command, id}
		if command == "get" {
			args = []string{"job", "get", id}
		}
		if out := run(args...); !strings.Contains(out, words) {
			t.Errorf("%v does not have %q:\n%s", args, words, out)
		}
	}
	if out := run("job", "ls", "-o", "id"); strings.Count(out, "\n") != 2 {
		t.Errorf("job ls has not two jobs:\n%s", out)
	}
	if out := run("queue", "ls"); !strings.Contains(out, "default") {
		t.Errorf("queue ls:\n%s", out)
	}
	kept := strings.TrimSpace(run("submit", "-o", "id", "--isolation", "none", "--", "sh", "-c", stays(600)))
	f.eventually(90*time.Second, "the job runs", func() bool { return f.record(kept).State == jobs.Executing })
	run("job", "cancel", kept)
	out := filepath.Join(t.TempDir(), "out")
	run("batch", "run", away.issues(2, func(int) string { return "" }), "--isolation", "none", "--out", out, "--", "true")
	if n := len(written(t, out)); n != 2 {
		t.Errorf("%d results of 2 items", n)
	}
	run("wait", long)
	f.eventually(90*time.Second, "all jobs have ended", func() bool { return f.states()[jobs.Finished] == 5 })
	for _, rec := range f.list() {
		outcome := jobs.Success
		if rec.ID == kept {
			outcome = jobs.Cancellation
		}
		if rec.Attempt != 1 || rec.Outcome != outcome {
			t.Errorf("job %s: %s (%s) after %d attempts, want %s after 1: %s\n%s", rec.ID, rec.Outcome, rec.Reason, rec.Attempt, outcome, rec.Message, run("logs", rec.ID))
		}
		f.gapless(f.events(rec.ID))
	}
	lines := 0
	for _, e := range f.events(long) {
		if e.Kind == jobs.OutputLine {
			lines++
		}
	}
	if lines != 15 {
		t.Errorf("%d lines of 15 are in the log", lines)
	}
}
