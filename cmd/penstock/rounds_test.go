package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// fixing is a conversation in which the model writes a mistake, says that it is done,
// and fixes the mistake only if it then sees the check's output and still knows its
// first prompt.
func fixing(write func(text string) agenttest.Step) *agenttest.Model {
	return agenttest.New(agenttest.Script{On: "MEND-IT", Steps: []agenttest.Step{
		write("bad"),
		agenttest.Say("done"),
		func(r agenttest.Request) agenttest.Reply {
			if !strings.Contains(r.Last, "wanted: good") || strings.Contains(r.Last, "MEND-IT") || r.Turn != 2 {
				return agenttest.Reply{Text: "I do not know what to mend."}
			}
			return write("good")(r)
		},
		agenttest.Say("done again"),
	}})
}

func shell(tool, argument string) func(text string) agenttest.Step {
	return func(text string) agenttest.Step {
		return agenttest.Use(tool, map[string]any{argument: "echo " + text + " > out.txt", "description": "write"})
	}
}

// A real agent goes on with its conversation in a new process when the check
// has failed: same session, same workspace, one budget.
func TestAnAgentMendsAFailedCheck(t *testing.T) {
	t.Parallel()
	// The second run resumes the session of the first, as opencode, whose starts take long, does in other tests.
	for _, agent := range []struct {
		name, api string
		model     string
		write     func(string) agenttest.Step
	}{
		{"claude", "ANTHROPIC", "", shell("Bash", "command")},
		{"codex", "OPENAI", "gpt-5.5", shell("exec_command", "cmd")},
		{"gemini", "GOOGLE", "gemini-2.5-flash", shell("run_shell_command", "command")},
	} {
		t.Run(agent.name, func(t *testing.T) {
			if _, err := exec.LookPath(agent.name); err != nil {
				skip(t, agent.name, "no %s in PATH", agent.name)
			}
			f := newFixture(t)
			model := fixing(agent.write)
			upstream := httptest.NewServer(model)
			t.Cleanup(upstream.Close)
			f.env = []string{agent.api + "_API_KEY=sk-" + rand.Text(), "PENSTOCK_MODEL_" + agent.api + "_URL=" + upstream.URL}
			args := []string{
				"run", "MEND-IT", "--repo", f.repo, "--agent", agent.name, "--expect-changes", "-o", "json",
				"--check", `grep -q good out.txt || { echo "wanted: good"; exit 3; }`, "--check-rounds", "2",
			}
			if agent.model != "" {
				args = append(args, "--model", agent.model)
			}
			said, code, told := f.try(args...)
			events := f.decode(said[:strings.LastIndex(strings.TrimSpace(said), "\n")+1])
			var result jobs.Result
			lines := strings.Split(strings.TrimSpace(said), "\n")
			f.must(json.Unmarshal([]byte(lines[len(lines)-1]), &result))
			if code != 0 || result.Outcome != jobs.Success || len(result.Checks) != 2 || result.FilesChanged != 1 {
				t.Fatalf("exit code %d, %+v\n%s\n%s", code, result, said, told)
			}
			sessions := map[string]bool{}
			for _, e := range events {
				if e.Kind == jobs.SessionStarted {
					var d struct{ Session string }
					f.must(json.Unmarshal(e.Data, &d))
					sessions[d.Session] = true
				}
			}
			if len(sessions) != 1 || count(events, jobs.CheckReturned) != 1 || count(events, jobs.RunExited) != 2 {
				t.Errorf("sessions %v\n%s", sessions, said)
			}
			// Four calls with 50 tokens out: those of both runs, each once.
			if result.Usage.Input < 4000 || result.Usage.Output != 200 {
				t.Errorf("used %+v", result.Usage)
			}

			said, code, _ = f.try(append(args, "--max-tokens", "2500")...)
			if code != 3 || !strings.Contains(said, string(jobs.BudgetExceeded)) {
				t.Errorf("a budget for both runs together: exit code %d\n%s", code, said)
			}
		})
	}
}
