package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// stubborn is an agent that does not end when it is told to, and has a child
// that left its process group.
const stubborn = `trap '' TERM INT HUP
(trap '' TERM INT HUP; setsid sh -c 'trap "" TERM INT HUP; (while :; do sleep 1; done) & while :; do sleep 1; done' </dev/null >/dev/null 2>&1 &) &
echo begun
while :; do sleep 1; done`

func (f *fixture) runs(id string) {
	f.Helper()
	f.eventually(20*time.Second, "job "+id+" runs", func() bool { return count(f.events(id), jobs.OutputLine) > 0 })
}

const (
	// untilGoOn is what an agent does that waits for goOn.
	untilGoOn = "while [ ! -e go-on ]; do sleep 0.1; done"
	// onlyFirst is what an agent does whose first attempt must not end by itself.
	onlyFirst = "[ $PENSTOCK_ATTEMPT -gt 1 ] || sleep 600"
)

// goOn lets an agent that runs go on from untilGoOn. The agent may end, and its jail with
// it, before anyone is told how the terminal's program ended.
func (f *fixture) goOn(id string, flags ...string) {
	f.Helper()
	if _, code, told := f.try(flagged(flags, []string{"attach", id, "--", "touch", "go-on"})...); code != 0 && code != cli.ExitStopped {
		f.Fatalf("attach ended with %d:\n%s", code, told)
	}
}

// stays is what an agent does that must still run when the test has done what takes
// a calm machine less time, and that nothing can reach then.
func stays(seconds int) string {
	return fmt.Sprintf("sleep %.0f", slowtest.Limit(time.Duration(seconds)*time.Second).Seconds())
}

// A job is cancelled wherever it is, within seconds and altogether.
func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	running := f.submit(stubborn)
	queued := f.submit("echo never")
	f.runs(running)
	f.run("job", "cancel", queued)
	if rec := f.record(queued); rec.State != jobs.Finished || rec.Outcome != jobs.Cancellation || rec.Attempt != 0 {
		t.Errorf("the queued job is %s, %s after %d attempts; want finished, cancellation, 0", rec.State, rec.Outcome, rec.Attempt)
	}
	f.run("job", "cancel", running)
	took := f.eventually(60*time.Second, "the running job ends", func() bool { return f.record(running).State == jobs.Finished })
	t.Logf("the running job ended within %v", took)
	if rec := f.record(running); rec.Outcome != jobs.Cancellation || rec.Reason != jobs.Cancelled {
		t.Errorf("the running job ended as %s, %s", rec.Outcome, rec.Reason)
	}
	if left := jailed(f.data); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	for _, id := range []string{queued, running} {
		events := f.events(id)
		f.gapless(events)
		if got := count(events, jobs.JobFinished); got != 1 {
			t.Errorf("job %s finished %d times", id, got)
		}
	}
	if _, code, told := f.try("wait", running, queued); code != 3 || !strings.Contains(told, "cancel") {
		t.Errorf("wait ended with %d, want 3: %s", code, told)
	}
	// The slot is free again, and a finished job cannot be cancelled.
	if _, code, told := f.try("job", "cancel", running); code != 1 || !strings.Contains(told, "finished") {
		t.Errorf("a second cancel ended with %d: %s", code, told)
	}
	f.run("wait", "--timeout", patience(20), f.submit("true"))
}

// With one slot, what is urgent is first, and equals come in their order.
func TestPriorities(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	var want []string
	ids := map[string]string{}
	for _, priority := range []string{"low", "normal", "high"} { // the least urgent was there first
		for i := range 2 {
			name := fmt.Sprint(priority, i)
			ids[f.submit("true", "--priority", priority)] = name
			want = append(want, name)
		}
	}
	want = append(want[4:], append(want[2:4:4], want[:2]...)...)
	f.worker("--slots", "1")
	all := []string{"wait", "--timeout", patience(60)}
	for id := range ids {
		all = append(all, id)
	}
	f.run(all...)
	claimed := map[string]time.Time{}
	for id, name := range ids {
		for _, e := range f.events(id) {
			if e.Kind == jobs.JobClaimed {
				claimed[name] = e.Time
			}
		}
	}
	for i := 1; i < len(want); i++ {
		if !claimed[want[i-1]].Before(claimed[want[i]]) {
			t.Errorf("%s was claimed after %s: %v", want[i-1], want[i], claimed)
		}
	}
}

// What is asked of a job from outside, at any time of its life.
func TestLifeOfAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "1")
	id := f.submit("echo one; [ $PENSTOCK_ATTEMPT -gt 1 ] || "+untilGoOn+"; echo two; test -e passes", "--key", "the-key")
	out, code, told := f.try("wait", "--timeout", "1s", id)
	if code != 8 || !strings.Contains(told, "the jobs continue") {
		t.Errorf("wait --timeout ended with %d, want 8:\n%s%s", code, out, told)
	}
	if rec := f.record(id); rec.State == jobs.Finished {
		t.Errorf("the job did not go on: %s", rec.State)
	}
	f.runs(id)
	f.goOn(id)
	if _, code, _ := f.try("wait", id); code != 3 {
		t.Errorf("wait ended with %d, want 3", code)
	}

	// The same key is the same job, also when the broker was started again.
	serve.end()
	f.start("serving", args...)
	if again := f.submit("echo other", "--key", "the-key"); again != id {
		t.Errorf("the same key gave job %s after %s", again, id)
	}

	// Watching what is over shows all of it and ends; so does a part of it.
	events := f.events(id)
	watched := f.decode(f.run("watch", "-o", "jsonl", id))
	if len(watched) != len(events) {
		t.Errorf("watch shows %d events, logs %d", len(watched), len(events))
	}
	for _, since := range []int{2, len(events), len(events) + 1} {
		part := f.decode(f.run("logs", "-o", "jsonl", "--since", fmt.Sprint(since), id))
		if len(part) != len(events)-since+1 || len(part) > 0 && part[0].Seq != uint64(since) {
			t.Errorf("logs --since %d shows %d of %d events", since, len(part), len(events))
		}
		if again := f.run("watch", "-o", "jsonl", "--since", fmt.Sprint(since), id); len(f.decode(again)) != len(part) {
			t.Errorf("watch --since %d shows, after the end:\n%s", since, again)
		}
	}

	// A retry is another attempt of the same job, of what the repository is now.
	f.must(os.WriteFile(filepath.Join(f.repo, "passes"), nil, 0o644))
	f.git("-C", f.repo, "add", "-A")
	f.git("-C", f.repo, "commit", "-qm", "make it pass")
	f.run("job", "retry", id)
	f.run("wait", "--timeout", patience(30), id)
	rec := f.record(id)
	if rec.Outcome != jobs.Success || rec.Attempt != 2 {
		t.Errorf("the retry ended as %s in attempt %d; want success in 2", rec.Outcome, rec.Attempt)
	}
	events = f.events(id)
	f.gapless(events)
	if got := count(events, jobs.JobFinished); got != 2 {
		t.Errorf("the job finished %d times, want 2", got)
	}
	if _, code, told := f.try("job", "retry", id); code == 0 || !strings.Contains(told, "success") {
		t.Errorf("a retry of a success ended with %d: %s", code, told)
	}
}

// A secret of the worker reaches only the agent that names it.
func TestSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	secret := "s3cret-" + jobs.NewID()
	encoded := base64.StdEncoding.EncodeToString([]byte(secret))
	f.env = []string{"PENSTOCK_SECRET_TOKEN=" + secret}
	f.serve("--slots", "1", "--log-level", "debug")
	shows := `echo "plain $TOKEN"; printf '{"json":"%s"}\n' "$TOKEN"; printf %s "$TOKEN" | base64 -w0; echo
	printf %s "$TOKEN" | wc -c | sed 's/^/length /'; echo "error $TOKEN" >&2; `
	failing := f.submit(shows+"exit 1", "--secret", "TOKEN") // the verdict quotes its last words
	checked := f.submit(shows, "--secret", "TOKEN", "--check", `echo "check $TOKEN"; false`)
	said := ""
	for _, id := range []string{failing, checked} {
		out, code, told := f.try("wait", id)
		if code != 3 {
			t.Errorf("wait ended with %d, want 3", code)
		}
		log := f.run("logs", "-o", "jsonl", id)
		for _, want := range []string{"plain ", "error ", fmt.Sprintf("length %d", len(secret)), "[redacted TOKEN]"} {
			if !strings.Contains(log, want) {
				t.Errorf("the events do not have %q:\n%s", want, log)
			}
		}
		said += out + told + log + f.run("job", "get", id)
	}
	if !strings.Contains(said, "check [redacted TOKEN]") || !strings.Contains(said, "ended with status 1: error [redacted TOKEN]") {
		t.Errorf("the check's output or the verdict is missing:\n%s", said)
	}
	f.absent(secret, []byte(said), f.data)
	f.absent(encoded, []byte(said), f.data)

	without := f.submit(`test -z "$TOKEN" && ! env | grep -q PENSTOCK_SECRET`)
	f.run("wait", "--timeout", patience(20), without)
	missing := f.submit("true", "--secret", "NOBODY_HAS_IT")
	if _, code, told := f.try("wait", missing); code != 4 || !strings.Contains(told, "PENSTOCK_SECRET_NOBODY_HAS_IT") {
		t.Errorf("a secret that is missing: exit code %d: %s", code, told)
	}
}

// list lists all jobs that are kept.
func (f *fixture) list() []jobs.Record {
	f.Helper()
	var list []jobs.Record
	f.must(json.Unmarshal([]byte(f.run("job", "ls", "-o", "json")), &list))
	return list
}
