package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// job ls selects by what jobs are labelled, came to and when, in the order that is
// asked for, and takes short ids wherever they name one job.
func TestJobsAreSelected(t *testing.T) {
	t.Parallel()
	c := newCaller(t)
	var ids []string
	for i, label := range []string{"team=web", "team=api", "lang=go"} {
		got := c.wants(0, nil, "submit", "--isolation", "none", "-o", "id", "--label", label, "--key", fmt.Sprint(3-i), "--queue", fmt.Sprint("q", 3-i), "--", "true")
		ids = append(ids, strings.TrimSpace(got.out))
	}
	c.wants(0, nil, "job", "cancel", ids[1])
	for _, try := range []struct {
		want []int
		args string
	}{
		{[]int{0, 1, 2}, ""}, {[]int{0}, "--label team=web"}, {[]int{0, 1}, "--label team"}, {nil, "--label team=web --label lang=go"},
		{[]int{1}, "--outcome cancellation"}, {nil, "--outcome success"}, {[]int{0, 1, 2}, "--since 1h"}, {nil, "--since 2999-01-01T00:00:00Z"},
		{[]int{2}, "--limit 1"}, {[]int{2, 1, 0}, "--sort queue"}, {[]int{1, 0, 2}, "--sort finished"}, {[]int{1, 0}, "--sort queue --limit 2"},
	} {
		var want strings.Builder
		for _, n := range try.want {
			want.WriteString(ids[n] + "\n")
		}
		if got := c.wants(0, nil, append([]string{"job", "ls", "-o", "id"}, strings.Fields(try.args)...)...); got.out != want.String() {
			t.Errorf("job ls %s lists\n%swant\n%s", try.args, got.out, want.String())
		}
	}
	c.wants(2, []string{"--since", "neither a time"}, "job", "ls", "--since", "yesterday")
	c.wants(2, []string{"--watch"}, "job", "ls", "-w", "--limit", "1")
	end := ids[0][len(ids[0])-5:]
	c.wants(0, []string{ids[0]}, "job", "get", end)
	c.wants(0, []string{ids[0]}, "why", end)
	c.wants(0, nil, "job", "events", end)
	c.wants(2, append([]string{"3 jobs begin or end with", "use more characters of the id"}, ids...), "job", "get", ids[0][:6])
	c.wants(5, []string{"at least 4 characters"}, "job", "get", ids[0][:3])
	c.wants(0, []string{"9    stopped early", "130  interrupted"}, "help", "exit-codes")
	c.wants(0, []string{"PENSTOCK_WORKER_SLOTS\n", "PENSTOCK_SERVE_LISTEN\n"}, "help", "environment")
	c.wants(0, []string{"swebench", "jsonl"}, "help", "formats")
}

// A drained queue starts no more jobs, and the command ends with its last job; job ls
// --watch shows each change.
func TestAQueueIsDrained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit("echo begun; sleep 600")
	f.runs(id)
	watch := f.begin("job", "ls", "-w", "--state", "executing")
	f.eventually(20*time.Second, "the job is listed", func() bool { return strings.Contains(watch.log.String(), id) })
	drain := f.begin("queue", "drain", "default")
	f.eventually(20*time.Second, "the queue is paused", func() bool { return strings.Contains(f.run("queue", "ls", "-o", "json"), `"paused"`) })
	waits := f.submit("true")
	f.refused(8, []string{"not finished after"}, "queue", "drain", "default", "--timeout", "300ms")
	f.run("job", "cancel", id)
	if code := f.ended(drain, 20*time.Second); code != 0 {
		t.Errorf("drain ended with %d", code)
	}
	f.eventually(20*time.Second, "the end is listed", func() bool { return strings.Contains(watch.log.String(), "finished") })
	if got := f.record(waits).State; got != "pending" {
		t.Errorf("the job behind it is %s, want pending", got)
	}
	f.run("queue", "resume", "default")
	f.run("wait", waits)
}
