package worker

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/gate"
)

// What the scripts of these tests say, as Claude Code does.
const (
	says           = `say() { case $1 in init) echo '{"type":"system","subtype":"init","session_id":"s","model":"m","tools":[]}';; result) echo '{"type":"result","subtype":"success","is_error":false,"result":"done"}';; aborted) echo '{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}';; retry) echo '{"type":"system","subtype":"api_retry","attempt":1,"error_status":529,"error":"overloaded"}';; text) echo '{"type":"assistant","message":{"content":"a word"}}';; esac; }` + "\n"
	ignoresSignals = "trap '' TERM INT HUP; "
	forever        = "while :; do sleep 0.2; done"
)

// speaks makes an agent of a script, which is called "stub" and speaks as
// claude does.
func (f *field) speaks(script string) jobs.Job {
	f.Helper()
	path := filepath.Join(f.TempDir(), "stub")
	f.must(exectest.WriteFile(path, []byte("#!/bin/sh\n"+says+script+"\n"), 0o755))
	api := httptest.NewServer(http.NotFoundHandler())
	f.Cleanup(api.Close)
	g, err := gate.New(gate.Config{Key: "key", Upstream: api.URL})
	f.must(err)
	f.Cleanup(func() { f.must(g.Close()) })
	f.cfg.Gates = map[string]*gate.Gate{"anthropic": g}
	f.cfg.Agents = builtin.Agents(agent.Config{
		Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"stub": {Protocol: "claude", Command: []string{path}}},
	})
	job := f.job("")
	job.Agent = jobs.Agent{Name: "stub"}
	job.Retry.MaxAttempts = 1
	return job
}

// Each way to hang is found by its own limit, and is ended by the first step
// that the agent obeys. That nothing is left is looked for when the worker ends.
func TestAgentsThatHang(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script string
		what   string
		reason jobs.Reason // empty: what it did counts
		step   string      // that ended it
	}{
		{"it never says a word", "exec sleep 60", "start", jobs.StartLimit, "term"},
		{"nor does it listen", ignoresSignals + forever, "start", jobs.StartLimit, "kill"},
		{"it works, and never says a word", "while :; do :; done", "start", jobs.StartLimit, "term"},
		{"it is silent, and lets itself be interrupted", `say init; while read -r l; do case $l in *interrupt*) say aborted;; esac; done`, "idle", jobs.IdleLimit, "interrupt"},
		{"it is silent until its input ends", "say init; cat >/dev/null", "idle", jobs.IdleLimit, "input"},
		{"it is stopped", "say init; sh -c 'kill -STOP $$'", "stopped", jobs.AgentHalted, "term"},
		{"one that left it is stopped", ignoresSignals + "say init; setsid sh -c 'kill -STOP $$' & " + forever, "stopped", jobs.AgentHalted, "kill"},
		{"it floods its output", "say init; exec yes", "output", jobs.OutputLimit, "term"},
		{"it floods it with a line that never ends", "say init; head -c 3m /dev/zero | tr '\\0' x; exec sleep 60", "output", jobs.OutputLimit, "term"},
		{"it only tries again", "say init; while sleep 0.02; do say retry; done", "retry", jobs.RetryLimit, "term"},
		{"it does not exit", "say init; say result; exec sleep 60", "exit", "", "term"},
		{"nor does what it left, and it talks", ignoresSignals + "say init; say result; setsid sh -c \"" + ignoresSignals + forever + "\" & while sleep 0.1; do say text; done", "exit", "", "kill"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			job := f.speaks(tt.script)
			f.cfg.Hangs = Hangs{Output: 2 << 20, Retries: 10, Step: 300 * time.Millisecond}
			switch tt.what { // only that limit may be reached, however slow the machine is
			case "start":
				f.cfg.Hangs.Start = time.Second
			case "idle":
				job.IdleTimeout = jobs.Duration(2 * time.Second)
			case "stopped":
				f.cfg.Hangs.Halt = 500 * time.Millisecond
			case "exit":
				f.cfg.Hangs.Exit = 500 * time.Millisecond
			}
			var hung []string
			f.cfg.Hooks.Hung = func(_ jobs.Record, what, step string) { hung = append(hung, what+" "+step) }
			rec, events := f.run(job)
			want := jobs.Success
			if tt.reason != "" {
				want = jobs.Reasons[tt.reason].Outcome
			}
			if rec.Outcome != want || rec.Reason != tt.reason {
				t.Errorf("ended with %s %s (%s), want %s %s: %s", rec.Outcome, rec.Reason, rec.Message, want, tt.reason, kinds(events))
			}
			found, gone := dataOf[event.HangDetected](t, events, jobs.HangDetected), dataOf[event.HangEnded](t, events, jobs.HangEnded)
			if len(found) != 1 || len(gone) != 1 || found[0].What != tt.what || gone[0].What != tt.what || gone[0].Step != tt.step {
				t.Errorf("told %+v and %+v, want %s ended by %s", found, gone, tt.what, tt.step)
			}
			if !slices.Equal(hung, []string{tt.what + " " + tt.step}) {
				t.Errorf("who watches heard of %q", hung)
			}
			if tt.reason != "" && (len(found) == 0 || !strings.Contains(rec.Message, found[0].Message)) {
				t.Errorf("the message is %q", rec.Message)
			}
		})
	}
}

// What looks like a hang and is none.
func TestAgentsThatTakeTheirTime(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"a program is stopped for a moment":               "say init; sleep 30 & kill -STOP $!; sleep 0.3; kill -CONT $!; kill $!; say result",
		"a program is stopped, the agent talks":           "say init; sleep 30 & kill -STOP $!; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.25; say text; done; kill -9 $!; say result",
		"retries that lead somewhere":                     "say init; for i in 1 2 3 4; do say retry; say retry; say retry; say text; done; say result",
		"it starts slowly, with little of the processors": "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do timeout 0.06 sh -c 'while :; do :; done'; sleep 0.1; done; say init; say result",
		"it starts slowly, with little of the disk":       "bash -c 'mkfifo /tmp/f; exec 3<>/tmp/f; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do printf %30000s x >/dev/null; read -t 0.25 -u 3; done'; say init; say result",
		"a turn follows on the end of the input":          "say init; say result; cat >/dev/null; say init; sleep 2.5; say result",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newField(t)
			job := f.speaks(script)
			f.cfg.Hangs = Hangs{Halt: 2 * time.Second, Exit: 2 * time.Second, Retries: 10, Step: 300 * time.Millisecond}
			if strings.Contains(name, "slowly") {
				f.cfg.Hangs.Start = 1500 * time.Millisecond
			}
			rec, events := f.run(job)
			if rec.Outcome != jobs.Success || count(events, jobs.HangDetected) > 0 {
				t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
			}
		})
	}
}

// A program of the user's own may be silent from its start; a signal that stops
// it is found all the same.
func TestAProgramThatIsStopped(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.cfg.Hangs = Hangs{Start: time.Millisecond, Halt: 500 * time.Millisecond, Step: 300 * time.Millisecond}
	job := f.job("sleep 0.5; kill -STOP $$")
	job.Retry.MaxAttempts = 1
	if rec, events := f.run(job); rec.Reason != jobs.AgentHalted {
		t.Errorf("ended with %s %s (%s): %s", rec.Outcome, rec.Reason, rec.Message, kinds(events))
	}
}
