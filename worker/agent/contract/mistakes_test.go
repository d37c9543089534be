package contract_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/contract"
)

// A wrong agent makes one mistake, which this check is about.
type wrong struct {
	mistake, check, seen string
	limit                time.Duration // of a run that does not end by itself; 0: it does
}

func (w wrong) time() time.Duration {
	if w.limit != 0 {
		return w.limit
	}
	return slowtest.Limit(time.Minute)
}

// want wants the check failed with the mistake.
func (w wrong) want(t *testing.T, found map[string]contract.Finding) {
	t.Helper()
	if f := found[w.check]; f.Status != contract.Failed || !strings.Contains(f.Seen, w.seen) {
		t.Errorf("with the mistake %q %s is %s, %q; want failed, %q", w.mistake, w.check, f.Status, f.Seen, w.seen)
	}
}

// Each check of prompts and answers fails with a script that is wrong in what the check is about,
// and none with the right one.
func TestWrongScripts(t *testing.T) {
	t.Parallel()
	wrongs := map[string]wrong{
		`p=$(printf %b "$p"); ` + call:                                            {check: "special_prompt", seen: "did not come to the model as it was"},
		`case $p in -*) echo usage; exit 0;; esac; ` + call:                       {check: "option_prompt", seen: "in 0 requests"},
		`case $p in /*) echo help; exit 0;; esac; ` + call:                        {check: "slash_prompt", seen: "in 0 requests"},
		`p=$PENSTOCK_PROMPT; ` + call:                                             {check: "long_prompt", seen: "did not come to the model as it was"},
		`(` + call + `) | tr -cd '[:alnum:] \n'`:                                  {check: "special_answer", seen: "no event has the model's answer"},
		`(` + call + `) | head -c 1000`:                                           {check: "long_answer", seen: "no event has the model's answer"},
		strings.Replace(call, "curl -sf", "curl -m 1 -sf", 1):                     {check: "slow_answer", seen: "agent_failed"},
		strings.Replace(call, ">/tmp/answer &&", ">/tmp/answer;", 1) + "; exit 0": {check: "dropped_answer", seen: "after half an answer"},
		call + `; exit 0; #404`:                                                   {check: "unknown_model", seen: "ended with success"},
		call + `; exit 0; #400`:                                                   {check: "bad_request", seen: "ended with success"},
	}
	var checks []string
	for text, w := range wrongs {
		checks = append(checks, w.check)
		t.Run(w.check, func(t *testing.T) {
			t.Parallel()
			w.want(t, script(t, "anthropic", text, w.time(), w.check))
		})
	}
	t.Run("right", func(t *testing.T) {
		t.Parallel()
		found := script(t, "anthropic", call, slowtest.Limit(time.Minute), checks...)
		for _, f := range found {
			if f.Status != contract.Yes {
				t.Errorf("%s: %s, %s", f.Check, f.Status, f.Seen)
			}
		}
		if len(found) != len(checks) {
			t.Errorf("%d findings of %d checks", len(found), len(checks))
		}
	})
}

// fakeAgent is a fake with that mistake.
func fakeAgent(t *testing.T, mistake string) *agent.Agents {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return described(agent.Custom{Protocol: "acp", Command: []string{self}, API: "anthropic", Env: map[string]string{mistakeVariable: mistake}})
}

// Each check of tools, failures, dialogues and permissions fails with an agent that is wrong in
// what the check is about, and none with the right one.
func TestWrongAgents(t *testing.T) {
	t.Parallel()
	const soon = 5 * time.Second // the agent does not end by itself
	wrongs := []wrong{
		{"hides its commands", "tools", "0 commands began", 0},
		{"names its calls alike", "parallel_tools", "of two commands 1 began", 0},
		{"calls it a success", "failed_tool", "exited with 3", 0},
		{"works elsewhere", "changes", "not in the workspace", 0},
		{"drops variables", "variables", `"they are`, 0},
		{"shares its input", "tool_input", "had not ended", soon},
		{"takes text only", "binary_output", "agent_crashed", 0},
		{"takes little", "large_output", "agent_crashed", 0},
		{"waits for all", "background", "had not ended", soon},
		{"trusts the repository", "repository", "a file of the repository", 0},
		{"names all sessions alike", "two_at_once", "both have the conversation", 0},
		{"takes errors for answers", "failure", "ended with success", 0},
		{"takes errors for answers", "server_error", "without an answer", 0},
		{"takes errors for answers", "rate_limit", "without an answer", 0},
		{"takes errors for answers", "budget", "ended with success", 0},
		{"ignores TERM", "terminated", "had not ended", soon},
		{"ignores interrupts", "interrupt", "had not ended", soon},
		{"ignores interrupts", "interrupt_tool", "had not ended", soon},
		{"takes one prompt", "interactive", "contract-two did not come", 0},
		{"takes one prompt", "queued_prompt", "did not come to the model", 0},
		{"asks once", "permission_once", "asked for 1, not 2", 0},
		{"always asks", "permission_always", "asked for 2, not 1", 0},
		{"does what is refused", "permission_refused", "ran 2 times, not 0", 0},
		{"forgets", "resume", "without what was said before", 0},
		{"forgets", "resume_asking", "without what was said before", 0},
		{"loads nothing", "lost_conversation", "as if there had been", 0},
		{"uses no servers", "mcp_servers", "was not offered", 0},
		{"uses no servers", "terminals", "was not offered", 0},
	}
	var checks []string
	for _, w := range wrongs {
		checks = append(checks, w.check)
		t.Run(w.check, func(t *testing.T) {
			t.Parallel()
			w.want(t, findings(t, fakeAgent(t, w.mistake), w.time(), w.check))
		})
	}
	t.Run("right", func(t *testing.T) {
		t.Parallel()
		for check, f := range findings(t, fakeAgent(t, "none"), slowtest.Limit(time.Minute), checks...) {
			if slices.Contains(checks, check) && f.Status != contract.Yes && f.Group != "servers" { // which the fake does not use
				t.Errorf("%s: %s, %s", check, f.Status, f.Seen)
			}
		}
	})
}

// A wrongAdapter makes a mistake with what the fake writes.
type wrongAdapter struct {
	agent.Adapter
	line func(agent.Line, agent.Read) agent.Read
	exit func(jobs.Ended) jobs.Ended
	// set and answer make something else of what people say.
	set    func(control.Settings) control.Settings
	answer func(control.Message) control.Message
}

type wrongDecoder struct {
	agent.Speaker
	agent.Decoder
	wrongAdapter
}

func (a wrongAdapter) About() agent.About { return a.Adapter.About() }

func (a wrongAdapter) Decoder(l agent.Launch) agent.Decoder {
	d := a.Adapter.Decoder(l)
	return wrongDecoder{d.(agent.Speaker), d, a}
}

func (d wrongDecoder) Line(l agent.Line) agent.Read {
	r := d.Decoder.Line(l)
	if d.line != nil {
		r = d.line(l, r)
	}
	return r
}

func (d wrongDecoder) Set(id string, to control.Settings) ([][]byte, error) {
	if d.set != nil {
		to = d.set(to)
	}
	return d.Speaker.Set(id, to)
}

func (d wrongDecoder) Answer(m control.Message) ([]event.Event, [][]byte, error) {
	if d.answer != nil {
		m = d.answer(m)
	}
	return d.Speaker.Answer(m)
}

func (d wrongDecoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	e, end := d.Decoder.Exit(code, signal)
	if d.exit != nil {
		end = d.exit(end)
	}
	return e, end
}

// Adapters that lose lines, or make more of strange ones than they are, are found, and so is one
// that takes a crash for a success.
func TestWrongAdapters(t *testing.T) {
	t.Parallel()
	agents := fakeAgent(t, "none")
	right, err := agents.Get("mine")
	if err != nil {
		t.Fatal(err)
	}
	for check, tt := range map[string]struct {
		adapter wrongAdapter
		seen    string
	}{
		"lines": {wrongAdapter{line: func(l agent.Line, r agent.Read) agent.Read {
			r.Events[0].Raw = nil
			return r
		}}, "is carried as"},
		"unknown_lines": {wrongAdapter{line: func(l agent.Line, r agent.Read) agent.Read {
			if slices.Contains([]string{"null", "[1,2]"}, string(l.Bytes)) {
				panic("what is that")
			}
			return r
		}}, "the adapter panics"},
		"killed": {wrongAdapter{exit: func(jobs.Ended) jobs.Ended { return jobs.Ended{Outcome: jobs.Success} }}, "ended with success"},
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			found := findings(t, agents, slowtest.Limit(time.Minute), check)
			if f := found[check]; f.Status != contract.Yes {
				t.Errorf("with the right adapter %s is %s, %q", check, f.Status, f.Seen)
			}
			tt.adapter.Adapter = right
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			wrongs := agent.New(agent.Config{Path: os.Getenv("PATH"), Programs: map[string]string{"acp": self}}, tt.adapter)
			wrong{mistake: "of the adapter", check: check, seen: tt.seen}.want(t, findings(t, wrongs, slowtest.Limit(time.Minute), check))
		})
	}
}

// An adapter of a real agent that makes something else of what people say, or does not tell what
// the agent does, is found.
func TestWrongAdaptersOfClaude(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "claude")
	right, err := builtin.Agents(agent.Config{}).Get("claude")
	if err != nil {
		t.Fatal(err)
	}
	without := func(wrong func(any) bool) func(agent.Line, agent.Read) agent.Read {
		return func(_ agent.Line, r agent.Read) agent.Read {
			r.Events = slices.DeleteFunc(r.Events, func(e event.Event) bool { return wrong(e.Payload) })
			return r
		}
	}
	for check, tt := range map[string]struct {
		adapter wrongAdapter
		seen    string
	}{
		"set_model":  {wrongAdapter{set: func(control.Settings) control.Settings { return control.Settings{Model: "claude-opus-4-1"} }}, "told to go on with claude-haiku-4-5"},
		"set_effort": {wrongAdapter{set: func(control.Settings) control.Settings { return control.Settings{Effort: "high"} }}, "high"},
		"plan_mode":  {wrongAdapter{set: func(control.Settings) control.Settings { return control.Settings{Mode: "acceptEdits"} }}, "of a plan mode"},
		"several_questions": {wrongAdapter{answer: func(m control.Message) control.Message {
			m.Answers = map[string]control.Words{"Which?": {"contract-right"}, "Whither?": {"contract-right"}}
			return m
		}}, "the answer to Which?"},
		"question_text":      {wrongAdapter{answer: func(m control.Message) control.Message { return control.Message{Options: []string{"1"}} }}, "the answer to Which?"},
		"permission_changed": {wrongAdapter{answer: func(control.Message) control.Message { return control.Message{} }}, "the one that it asked for ran: true"},
		"context":            {wrongAdapter{line: without(func(p any) bool { _, ok := p.(event.Usage); return ok })}, "it told of"},
		"compaction":         {wrongAdapter{line: without(func(p any) bool { _, ok := p.(event.Notice); return ok })}, "of a shorter conversation"},
		"subagents":          {wrongAdapter{line: without(func(p any) bool { _, ok := p.(event.ToolStarted); return ok })}, "not seen to begin and end"},
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			tt.adapter.Adapter = right
			agents := agent.New(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"mine": {Protocol: "claude"}}}, tt.adapter)
			wrong{mistake: "of the adapter", check: check, seen: tt.seen}.want(t, findings(t, agents, slowtest.Limit(time.Minute), check))
		})
	}
}
