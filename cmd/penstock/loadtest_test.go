package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/penstock/benchcmd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// onceThen is a directory for jobs without a workspace of their own, and a command of which
// the first one there succeeds and the others do something else.
func (f *fixture) onceThen(other string) []string {
	return []string{"--isolation", "none", "--repo", f.TempDir(), "--", "sh", "-c", "mkdir once 2>/dev/null || { " + other + "; }"}
}

func (f *fixture) inBatch(batch string) []jobs.Record {
	f.Helper()
	var list []jobs.Record
	f.must(json.Unmarshal([]byte(f.run("job", "ls", "--batch", batch, "-o", "json")), &list))
	return list
}

// A load is measured by who may submit, on the bus and over HTTP.
func TestALoad(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := "http://" + f.serveHTTP("--slots", "2", "--queues", "default,bench")
	for way, flags := range map[string][]string{
		"on the bus": f.credentials()[jobs.RoleSubmitter], "over HTTP": f.overHTTP(address, jobs.RoleSubmitter),
	} {
		var got benchcmd.Report
		f.must(json.Unmarshal([]byte(f.run(flagged([]string{"bench", "--jobs", "10", "--rate", "0", "-o", "json"}, flags)...)), &got))
		if got.Jobs != 10 || got.Submitted != 10 || got.Finished != 10 || got.Cancelled != 0 || got.Outcomes[jobs.Success] != 10 || len(got.Errors) > 0 || len(got.Reasons) > 0 {
			t.Errorf("%s: %+v", way, got)
		}
		if got.SubmittedPerSecond < got.FinishedPerSecond || got.FinishedPerSecond <= 0 {
			t.Errorf("%s: %.2f submitted and %.2f finished in a second", way, got.SubmittedPerSecond, got.FinishedPerSecond)
		}
		for what, times := range map[string]benchcmd.Times{"submit": got.Submit, "wait": got.Wait, "run": got.Run, "total": got.Total} {
			if times.Count != 10 || times.P50 <= 0 || times.P50 > times.P95 || times.P95 > times.P99 || times.P99 > times.Max {
				t.Errorf("%s: times of %s: %+v", way, what, times)
			}
		}
		list := f.inBatch(got.Batch)
		for _, rec := range list {
			if rec.Queue != "bench" || rec.Outcome != jobs.Success || rec.Isolation != jobs.IsolationNone {
				t.Errorf("%s: %+v", way, rec)
			}
		}
		if len(list) != 11 { // with the trial
			t.Errorf("%s: %d jobs were made", way, len(list))
		}
	}
	out, code, said := f.try("bench", "--jobs", "5", "--rate", "10", "--clients", "2", "--isolation", "worktree", "--repo", f.repo, "--", "sh", "-c", "echo hi > new.txt")
	for _, words := range []string{"submitted", "finished", "success", "P99", "submit → answer", "queue wait", "start → finish", "submit → finish"} {
		if code != 0 || !strings.Contains(out, words) {
			t.Errorf("it ends with %d, and does not show %q:\n%s%s", code, words, out, said)
		}
	}
	if !strings.Contains(said, "stay as long as the settings of retention say") {
		t.Errorf("it does not say what stays: %s", said)
	}
	// The first tick comes after 0.1 s, and none too early, however slow the machine is.
	var paced benchcmd.Report
	f.must(json.Unmarshal([]byte(f.run("bench", "--jobs", "5", "--rate", "10", "-o", "json")), &paced))
	if paced.SubmittedPerSecond > 5/0.4 {
		t.Errorf("%.2f submissions a second, want 12.5 at most", paced.SubmittedPerSecond)
	}
}

// What would happen to every job of a load happens to one, and ends it.
func TestALoadIsTried(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	as := f.credentials()
	made := func() int { return len(f.list()) }
	f.refused(9, []string{"trial job", "nothing else was submitted", "hint: ", "--queue"}, "bench")
	if list := f.list(); len(list) != 1 || list[0].Outcome != jobs.Cancellation {
		t.Errorf("the trial is left as %+v", list)
	}
	f.refused(3, []string{"trial job", "failure", "nothing else was submitted"}, "bench", "--queue", "default", "--", "false")
	f.refused(6, []string{"not allowed", "hint: "}, flagged([]string{"bench"}, as[jobs.RoleViewer])...)
	f.run("queue", "pause", "default")
	f.refused(9, []string{"trial job", "paused"}, "bench", "--queue", "default")
	f.run("queue", "resume", "default")
	if got := made(); got != 3 {
		t.Errorf("%d jobs were made, want 3 trials", got)
	}
	if left := f.letters(); len(left) > 0 {
		t.Errorf("%d dead letters are left", len(left))
	}
	if out, code, said := f.try(flagged([]string{"bench", "--queue", "default", "--jobs", "3"}, f.onceThen("false"))...); code != 3 || !strings.Contains(out, "agent_failed") {
		t.Errorf("it ends with %d: %s%s", code, out, said)
	}
	// All but the trial are dead: that is reported, and what a submitter may not remove stays.
	some := func(flags ...string) []string {
		dir := t.TempDir()
		f.must(os.WriteFile(filepath.Join(dir, "agent"), []byte("#!/bin/sh\nrm agent\n"), 0o755))
		return after([]string{"bench", "--queue", "default", "--jobs", "3", "-o", "json", "--isolation", "none", "--repo", dir, "--", "./agent"}, flags)
	}
	for role, letters := range map[jobs.Role]int{jobs.RoleOperator: 0, jobs.RoleSubmitter: 3} {
		out, code, said := f.try(some(as[role]...)...)
		var got benchcmd.Report
		f.must(json.Unmarshal([]byte(out), &got))
		if code != 4 || got.Finished != 3 || got.Outcomes[jobs.Error] != 3 || len(got.Reasons) != 1 || !strings.Contains(said, "error") {
			t.Errorf("%s: it ends with %d, %+v\n%s", role, code, got, said)
		}
		if left := f.letters("--batch", got.Batch); len(left) != letters {
			t.Errorf("%s: %d dead letters are left, want %d", role, len(left), letters)
		}
	}
}

// A load that is interrupted, or takes too long, leaves no job to run.
func TestALoadIsStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "2")
	stopped := func(want int) {
		t.Helper()
		f.eventually(60*time.Second, "no job is left", func() bool { return f.states()[jobs.Finished] == want })
	}
	p := f.begin(flagged([]string{"bench", "--queue", "default", "--jobs", "6"}, f.onceThen(stays(600)))...)
	f.eventually(60*time.Second, "all are submitted", func() bool { return len(f.list()) == 7 && f.states()[jobs.Executing] == 2 })
	f.must(p.Process.Signal(os.Interrupt))
	if code := f.ended(p, slowtest.Limit(30*time.Second)); code != 130 || !strings.Contains(p.log.String(), "interrupted; 6 jobs were cancelled") {
		t.Errorf("it ended with %d:\n%s", code, p.log)
	}
	stopped(7)
	out, code, said := f.try(flagged([]string{"bench", "--queue", "default", "--jobs", "4", "--timeout", "4s", "-o", "json"}, f.onceThen(stays(600)))...)
	if code != 8 || !strings.Contains(said, "not finished after 4s") {
		t.Errorf("it ended with %d:\n%s%s", code, out, said)
	}
	stopped(len(f.list()))
	if left := f.letters(); len(left) > 0 {
		t.Errorf("%d dead letters are left", len(left))
	}
}

// What is no load, or no pool, is refused before anything is submitted.
func TestALoadThatIsNone(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	for flag, words := range map[string]string{
		"--jobs=0": "must be 1 to 1000000", "--jobs=10001": "more than 10000 jobs need --force", "--jobs=1000001": "must be 1 to 1000000",
		"--rate=-1": "--rate: -1 is less than 0", "--rate=NaN": "--rate", "--rate=1e9": "--rate", "--clients=0": "must be 1 to 1000", "--timeout=0s": "--timeout",
		"--queue=No": "not a name", "--isolation=worktree": "repo.url", "--repo=" + filepath.Join(c.dir, "none"): "--repo", "argument": "write a command behind --",
	} {
		c.wants(2, []string{words}, "bench", flag)
	}
	c.wants(5, []string{"no pool has used it", c.data}, "bench")
	c.wants(5, []string{"no pool has used it"}, "bench", "--jobs", "10001", "--force")
	c.wants(0, nil, "submit", "--isolation", "none", "--", "true")
	c.wants(7, []string{"no pool runs on " + c.data, "hint: ", "default,nightly"}, "bench", "--queue", "nightly")
	c.wants(7, []string{"127.0.0.1:1"}, "bench", "--server", "nats://127.0.0.1:1")
	if got := strings.Count(c.wants(0, nil, "job", "ls", "-o", "id").out, "\n"); got != 1 {
		t.Errorf("%d jobs were made, want the one that was submitted", got)
	}
}
