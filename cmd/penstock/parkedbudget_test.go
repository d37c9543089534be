package main

import (
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// dearClaude has the real Claude Code write a file in a dear call, and end in another one.
func dearClaude(t *testing.T) (f *fixture, model *agenttest.Model) {
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f = newFixture(t)
	write := agenttest.Call{Name: "Bash", Input: map[string]any{"command": "echo begun >>made.txt", "description": "begin"}}
	dear := func(text string, calls ...agenttest.Call) agenttest.Step {
		return func(agenttest.Request) agenttest.Reply {
			return agenttest.Reply{Text: text, Calls: calls, Input: 400_000}
		}
	}
	model = agenttest.New(agenttest.Script{Steps: []agenttest.Step{dear("I begin.", write), dear("It is done.")}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = append(f.env, "ANTHROPIC_API_KEY="+keyPrefix, "PENSTOCK_MODEL_ANTHROPIC_URL="+upstream.URL)
	return f, model
}

// parked waits until a job is parked in an attempt for a reason.
func (f *fixture) parked(id string, attempt int, reason jobs.Reason) jobs.Record {
	f.Helper()
	var rec jobs.Record
	f.eventually(time.Minute, "job "+id+" is parked", func() bool {
		rec = f.record(id)
		return rec.State == jobs.Finished || rec.State == jobs.Delayed && rec.Attempt == attempt
	})
	if rec.State != jobs.Delayed || rec.Reason != reason || rec.Counted != 0 || rec.Lost != 0 {
		f.Fatalf("%s %s %s (%s), %d counted, %d lost", rec.State, rec.Outcome, rec.Reason, rec.Message, rec.Counted, rec.Lost)
	}
	return rec
}

// wentOn checks that a job has ended well, and that its agent did not begin anew.
func (f *fixture) wentOn(id string, model *agenttest.Model) {
	f.Helper()
	f.run("wait", "--timeout", patience(90), id)
	requests := model.Requests()
	if last := requests[len(requests)-1]; last.Turn == 0 || len(requests) != 2 {
		f.Errorf("%d calls, the last one of turn %d", len(requests), last.Turn)
	}
}

// A job that is parked with its budget spent outlives its server, says what it waits for, and goes on from
// its conversation when its budget is raised, and not before.
func TestAParkedJobGoesOnWithALargerBudget(t *testing.T) {
	t.Parallel()
	f, model := dearClaude(t)
	serve, args := f.serve("--slots", "1")
	id := strings.TrimSpace(f.run("submit", "Begin, and end.", "-o", "id", "--repo", f.repo, "--agent", "claude", "--model", "claude-sonnet-4-5", "--max-tokens", "300000", "--on-budget", "park"))
	f.parked(id, 1, jobs.BudgetParked)
	serve.kill()
	f.start("serving", args...)
	rec := f.parked(id, 1, jobs.BudgetParked)
	if told := f.run("why", id); !strings.Contains(told, "the budget of 300000 tokens is spent") || !strings.Contains(told, "penstock job resume") {
		t.Errorf("why: %s", told)
	}
	if told := f.run("queue", "ls"); !strings.Contains(told, "1 budget_parked") {
		t.Errorf("queue ls: %s", told)
	}
	if left := f.run("cost", "--job", id); !strings.Contains(left, "job:"+id) || !strings.Contains(left, "300000 tokens") || !strings.Contains(left, "0 tokens") {
		t.Errorf("cost: %s", left)
	}
	for want, more := range map[string][]string{
		"name a larger budget":       nil,
		"not more than its budget":   {"--max-tokens", "300000"},
		"has no budget of that kind": {"--max-cost", "5"},
		"of which 400":               {"--max-tokens", "400000"},
		"resume it without a prompt": {"--max-tokens", "5000000", "--prompt", "Go on."},
	} {
		if _, code, told := f.try(append([]string{"job", "resume", id}, more...)...); code == 0 || !strings.Contains(told, want) {
			t.Errorf("%v ends with %d: %s", more, code, told)
		}
	}
	if now := f.record(id); now.State != jobs.Delayed || now.Raised != (jobs.Allowance{}) || now.Attempt != rec.Attempt {
		t.Errorf("what was refused has changed the job: %+v", now)
	}
	f.run("job", "resume", id, "--max-tokens", "5000000")
	f.wentOn(id, model)
	if now := f.record(id); now.Outcome != jobs.Success || now.Raised.Tokens != 5_000_000 || now.Attempt != 2 {
		t.Errorf("with a larger budget it ended as %s (%s): %s; %+v", now.Outcome, now.Reason, now.Message, now.Raised)
	}
}

// A job that waits for the next period of a shared budget goes on when a server is started with a larger one.
// A server that is killed in between changes nothing.
func TestALargerSharedBudgetWakesItsJobs(t *testing.T) {
	t.Parallel()
	f, model := dearClaude(t)
	serve, args := f.serve("--slots", "1", "--budget", "pool=300000tokens/month")
	id := strings.TrimSpace(f.run("submit", "Begin, and end.", "-o", "id", "--repo", f.repo, "--agent", "claude", "--model", "claude-sonnet-4-5"))
	f.parked(id, 1, jobs.BudgetWaiting)
	if told := f.run("why", id); !strings.Contains(told, "pool=300000tokens/month") || !strings.Contains(told, "begins at") {
		t.Errorf("why: %s", told)
	}
	f.run("job", "resume", id) // tried at once
	f.parked(id, 2, jobs.BudgetWaiting)
	serve.kill()
	again := f.start("serving", args...)
	f.parked(id, 2, jobs.BudgetWaiting)
	again.kill()
	args[len(args)-1] = "pool=5000000tokens/month"
	f.start("serving", args...)
	f.wentOn(id, model)
}
