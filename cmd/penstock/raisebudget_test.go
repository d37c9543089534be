package main

import (
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A job that has spent its budget goes on with a larger one, from its conversation, and not
// without.
func TestAJobGoesOnWithALargerBudget(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	dear := func(text string, calls ...agenttest.Call) agenttest.Step {
		return func(agenttest.Request) agenttest.Reply {
			return agenttest.Reply{Text: text, Calls: calls, Input: 400_000}
		}
	}
	write := agenttest.Call{Name: "Bash", Input: map[string]any{"command": "echo begun >>made.txt", "description": "begin"}}
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{dear("I begin.", write), dear("It is done.")}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = append(f.env, "ANTHROPIC_API_KEY="+keyPrefix, "PENSTOCK_MODEL_ANTHROPIC_URL="+upstream.URL)
	f.serve("--slots", "1")
	id := strings.TrimSpace(f.run("submit", "Begin, and end.", "-o", "id", "--repo", f.repo, "--agent", "claude", "--model", "claude-sonnet-4-5", "--max-tokens", "300000"))
	f.try("wait", "--timeout", patience(90), id)
	rec := f.record(id)
	if rec.Reason != jobs.BudgetExceeded {
		t.Fatalf("the job ended as %s (%s): %s", rec.Outcome, rec.Reason, rec.Message)
	}
	for want, args := range map[string][]string{
		"are not more than its budget of 300000": {"--max-tokens", "300000"},
		"has no budget of that kind":             {"--max-cost", "5"},
		"--max-tokens is 0":                      {"--max-tokens", "0"},
	} {
		if _, code, told := f.try(append([]string{"job", "resume", id}, args...)...); code == 0 || !strings.Contains(told, want) {
			t.Errorf("%v ends with %d: %s", args, code, told)
		}
	}
	if now := f.record(id); now.State != jobs.Finished || now.Raised != (jobs.Allowance{}) {
		t.Errorf("what was refused has changed the job: %+v", now)
	}
	f.run("job", "resume", id, "--max-tokens", "5000000")
	f.run("wait", "--timeout", patience(90), id)
	if now := f.record(id); now.Outcome != jobs.Success || now.Raised.Tokens != 5_000_000 || now.Attempt != rec.Attempt+1 {
		t.Errorf("with a larger budget it ended as %s (%s): %s; %+v", now.Outcome, now.Reason, now.Message, now.Raised)
	}
}
