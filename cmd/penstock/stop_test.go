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

// Real agents are interrupted within a command that does not end, are told to go
// on, find that the command is gone, and are stopped: the second time within
// such a command. What they changed is the job's. That a command runs it says
// by itself.
func TestInterruptAndStop(t *testing.T) {
	t.Parallel()
	// Claude Code has other tests of this, and opencode, whose starts take long, the contract of agents.
	for _, tt := range []struct{ agent, api, model, tool, argument string }{
		{"codex", "OPENAI", "gpt-5.5", "exec_command", "cmd"},
		{"gemini", "GOOGLE", "gemini-2.5-flash", "run_shell_command", "command"},
	} {
		t.Run(tt.agent, func(t *testing.T) {
			if _, err := exec.LookPath(tt.agent); err != nil {
				skip(t, tt.agent, "no %s in PATH", tt.agent)
			}
			f := newFixture(t)
			run := func(command string) agenttest.Reply {
				return agenttest.Reply{Calls: []agenttest.Call{{Name: tt.tool, Input: map[string]any{tt.argument: command, "description": "run"}}}}
			}
			// What is on its history after an interrupt differs between agents, so
			// the step is told by what it was told last.
			upstream := httptest.NewServer(agenttest.New(agenttest.Script{On: "BEGIN", Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
				switch {
				case strings.Contains(r.Last, "look again"):
					return run("echo made >made.txt; pgrep -f '[s]leep 4321' || echo none is left")
				case strings.Contains(r.Last, "none is left"):
					return agenttest.Reply{Text: "it is gone"}
				case strings.Contains(r.Last, "hang again"), strings.Contains(r.Last, "BEGIN"):
					return run("penstock milestone runs; sleep 4321")
				}
				return agenttest.Reply{Text: "LAST " + r.Last}
			}}}))
			t.Cleanup(upstream.Close)
			f.env = []string{tt.api + "_API_KEY=" + keyPrefix + "stop", "PENSTOCK_MODEL_" + tt.api + "_URL=" + upstream.URL}
			f.serve("--slots", "1")
			k := talk{f, strings.TrimSpace(f.run("submit", "BEGIN", "--agent", tt.agent, "--model", tt.model, "--interactive", "--repo", f.repo, "-o", "id"))}
			k.seen(jobs.Milestone, 1)
			f.run("job", "interrupt", k.id)
			k.has(k.seen(jobs.TurnEnded, 1), `"interrupted"`)
			f.run("send", k.id, "look again")
			k.has(k.seen(jobs.TurnEnded, 2), "it is gone")
			f.run("send", k.id, "hang again")
			k.seen(jobs.Milestone, 2)
			f.run("job", "stop", k.id)
			f.eventually(30*time.Second, "the job ends", func() bool { return f.record(k.id).State == jobs.Finished })
			if rec := f.record(k.id); rec.Reason != jobs.Cancelled || !strings.Contains(rec.Message, "stopped the agent within its turn") {
				t.Errorf("it ended with %s: %s", rec.Reason, rec.Message)
			}
			if patch := f.run("job", "diff", k.id); !strings.Contains(patch, "+made") {
				t.Errorf("the patch is %q", patch)
			}
			f.gapless(f.events(k.id))
			if t.Failed() {
				t.Log(f.run("logs", k.id))
			}
		})
	}
}
