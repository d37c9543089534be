package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/terminal"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// floods is an agent that asks, and then writes faster than the log takes it. Its
// terminals count how much it got rid of.
const floods = `say init
printf '{"type":"control_request","request_id":"q1","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}}}\n'
line=$(head -c 4096 /dev/zero | tr '\0' x)
(n=0; while printf '{"type":"assistant","message":{"content":"%s"}}\n' "$line"; do echo $((n=n+1)) > /tmp/flood; done) &
read -r answer; echo "$answer" > /workspace/answered; sleep 1000`

// blockLog has the recorder stand still at its first event, as with a broker that
// does not answer, until the function that it returns is called.
func (f *field) blockLog() (release func()) {
	gate := make(chan struct{})
	f.cfg.Hooks.Events = func(jobs.Kind, int, time.Duration) { <-gate }
	release = sync.OnceFunc(func() { close(gate) })
	f.Cleanup(release)
	return release
}

// waitForFlood waits until the recorder can take no more: through a terminal, so
// that shows that people can still attach, too.
func (f *field) waitForFlood(session string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), jobstest.Patience)
	defer cancel()
	// How many lines that is differs with what was in the first batch, so what counts is that
	// no more are taken. The file is empty for a moment before each number.
	script := `until n=$(cat /tmp/flood); sleep 0.3; test -n "$n" && test "$n" = "$(cat /tmp/flood)"; do :; done`
	r := terminal.Request{Verb: terminal.Open, ID: jobs.NewID(), Args: []string{"sh", "-c", script}}
	f.until("a terminal opens", func() bool {
		open, err := f.eye.log.Terminal(ctx, session, r)
		if err == nil {
			r = terminal.Request{Verb: terminal.Read, ID: r.ID, Attempt: open.Attempt, Terminal: open.Terminals[0].Terminal}
		}
		return err == nil
	})
	f.until("the log is full", func() bool {
		read, err := f.eye.log.Terminal(ctx, session, r)
		return err == nil && read.Exit != nil
	})
}

// While the session's log takes nothing its agent can be answered, looked at and
// stopped.
func TestASlowLogHoldsUpNoMessage(t *testing.T) {
	t.Parallel()
	f := newField(t)
	release := f.blockLog()
	job := f.speaks(floods)
	job.Agent.Interactive = true
	stop := f.work()
	defer stop()
	rec := f.submit(job)
	f.waitForFlood(rec.Session)
	f.told(rec.ID, control.Message{Verb: control.Answer, Options: []string{"B"}})
	f.told(rec.ID, control.Message{Verb: control.Stop, By: "ann"})
	f.until("the agent ends", func() bool { return len(processesOf(rec.ID)) == 0 })
	release()
	got, events := f.ended(rec.ID)
	if got.Reason != jobs.Cancelled || got.Attempt != 1 {
		t.Errorf("%s %s (%s) after %d attempts", got.Outcome, got.Reason, got.Message, got.Attempt)
	}
	closed := dataOf[control.Ask](t, events, jobs.AskClosed)
	if len(closed) != 1 || closed[0].How != "answered" {
		t.Errorf("the question was closed as %+v", closed)
	}
	f.checkEvents(events)
}

// While the log takes no events the agent is watched: a question without an answer in
// time ends it. The silence of the log does not count as the agent's.
func TestASlowLogHoldsUpNoWatch(t *testing.T) {
	t.Parallel()
	f := newField(t)
	release := f.blockLog()
	job := f.speaks(floods)
	job.Agent.Interactive, job.IdleTimeout = true, jobs.Duration(time.Second)
	job.Ask = jobs.Ask{Timeout: jobs.Duration(slowtest.Limit(4 * time.Second)), Fail: true}
	stop := f.work()
	defer stop()
	rec := f.submit(job)
	f.waitForFlood(rec.Session)
	f.until("the agent ends", func() bool { return len(processesOf(rec.ID)) == 0 })
	release()
	if got, events := f.ended(rec.ID); got.Reason != jobs.Unanswered {
		t.Errorf("%s %s (%s): %s", got.Outcome, got.Reason, got.Message, kinds(events))
	}
}
