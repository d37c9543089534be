package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// spending calls the model API of Anthropic by itself, forty times.
const spending = `for n in $(seq 40); do curl -sS -m 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" ` +
	`-d '{"model":"claude-opus-5","max_tokens":1000,"messages":[{"role":"user","content":"ALONE"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; done; echo again`

// Every real agent is bounded by --max-cost at the gate: by what its model goes on to do,
// and for Claude Code also by what a program that it starts does behind its back. By the
// provider's account a job costs no more than its budget and one answer.
func TestEveryAgentKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	for _, agent := range []struct {
		name, api, model, tool, argument, command string
		each                                      float64 // dollars that an answer costs
	}{
		{"claude", "ANTHROPIC", "claude-opus-5", "Bash", "command", spending, 0.1},
		{"codex", "OPENAI", "gpt-5.5", "exec_command", "cmd", "echo again", 0.1},
		{"gemini", "GOOGLE", "gemini-2.5-flash", "run_shell_command", "command", "echo again", 0.006},
		{"opencode", "ANTHROPIC", "claude-sonnet-4-5", "bash", "command", "echo again", 0.06},
	} {
		t.Run(agent.name, func(t *testing.T) {
			if _, err := exec.LookPath(agent.name); err != nil {
				skip(t, agent.name, "no %s in PATH", agent.name)
			}
			f := newFixture(t)
			use := agenttest.Use(agent.tool, map[string]any{agent.argument: agent.command, "description": "spend"})
			model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
				reply := use(r)
				if r.First == "ALONE" {
					reply = agenttest.Reply{Text: "ok"}
				}
				reply.Input, reply.Output = 20_000, 1
				return reply
			}}})
			upstream := httptest.NewServer(model)
			t.Cleanup(upstream.Close)
			f.env = []string{agent.api + "_API_KEY=sk-" + rand.Text(), "PENSTOCK_MODEL_" + agent.api + "_URL=" + upstream.URL}
			limit := 5.5 * agent.each
			said, code, told := f.try("run", "FOREVER", "--repo", f.repo, "--agent", agent.name, "--model", agent.model, "-o", "json",
				"--timeout", "2m", "--max-cost", fmt.Sprint(limit))
			lines := strings.Split(strings.TrimSpace(said), "\n")
			var result jobs.Result
			f.must(json.Unmarshal([]byte(lines[len(lines)-1]), &result))
			events := f.decode(strings.Join(lines[:len(lines)-1], "\n"))
			calls := len(model.Requests())
			if code != 3 || result.Reason != jobs.BudgetExceeded || count(events, jobs.BudgetSpent) != 1 || count(events, jobs.BudgetWarned) != 1 {
				t.Errorf("exit code %d, %s (%s) after %d calls\n%s", code, result.Reason, result.Message, calls, told)
			}
			if result.CostUSD < limit || result.CostUSD > limit+1.1*agent.each {
				t.Errorf("it cost %v of %v dollars in %d calls", result.CostUSD, limit, calls)
			}
			t.Logf("%s: %d calls, %.3f of %.3f dollars", agent.name, calls, result.CostUSD, limit)
		})
	}
}

// A batch stops when its budget is spent: no more than one answer for each job that runs
// goes beyond it, and the exit code says that it was stopped. Cost adds up what was spent.
func TestABatchKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl", "no curl in PATH")
	}
	f := newFixture(t)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(agenttest.Request) agenttest.Reply {
		return agenttest.Reply{Text: "ok", Input: 20_000, Output: 1} // 0.1 dollars of Opus 5
	}}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = []string{"ANTHROPIC_API_KEY=sk-" + rand.Text(), "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	file, out := f.issues(12, func(i int) string { return fmt.Sprintf("CASE-%03d", i) }), t.TempDir()+"/results"
	said, code, told := f.try("batch", "run", file, "--repo", f.repo, "--max-parallel", "2", "--batch-max-cost", "0.45", "--out", out,
		"--", "sh", "-c", strings.Replace(spending, "seq 40", "seq 1", 1))
	calls := len(model.Requests())
	if code != 9 || !strings.Contains(said+told, string(jobs.BatchBudget)) || calls < 5 || calls > 6 {
		t.Errorf("exit code %d after %d calls\n%s%s", code, calls, said, told)
	}
	if said, code, told = f.try("batch", "report", out); code != 0 || !regexp.MustCompile(`(?m)^\| cost \| \$0\.\d\d of \$0\.45 \(\d+ %\) \|$`).MatchString(said) {
		t.Errorf("report: exit code %d\n%s%s", code, said, told)
	}
	said, code, told = f.try("cost", "--budgets", "--batch", results.BatchID(out), "-o", "json")
	var left []operation.Budget
	if err := json.Unmarshal([]byte(said), &left); code != 0 || err != nil || len(left) != 1 || left[0].LimitUSD != 0.45 || left[0].Share < 1 || left[0].LeftUSD != 0 {
		t.Errorf("cost --budgets: exit code %d, err %v, %+v\n%s%s", code, err, left, said, told)
	}
	said, code, told = f.try("cost", "--by", "model", "-o", "json")
	if code != 0 || !strings.Contains(said, `"cost_usd"`) {
		t.Errorf("cost: exit code %d\n%s%s", code, said, told)
	}
}
