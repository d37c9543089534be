package main

import (
	"crypto/rand"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// opens is a model that has its agent open a terminal, wait for a person, and
// type in it.
func opens(prefix string) *agenttest.Model {
	command := []string{"sh", "-c", "echo from the agent; read x; echo got $x; read y; echo then $y; exec sleep 1000"}
	use := func(tool string, input map[string]any) agenttest.Step { return agenttest.Use(prefix+tool, input) }
	read := use("terminal_read", map[string]any{"terminal": 2, "wait_seconds": 30}) // until it has ended
	return agenttest.New(agenttest.Script{On: "OPEN-IT", Steps: []agenttest.Step{
		use("terminal_create", map[string]any{"command": command}),
		use("terminal_write", map[string]any{"terminal": 1, "text": "the model\r"}),
		use("terminal_read", map[string]any{"terminal": 1, "from": 0}),
		// A person types what ends this program.
		use("terminal_create", map[string]any{"command": []string{"sh", "-c", "read x; echo went $x"}}),
		read, read, read, read,
		func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} },
	}})
}

// A person looks at the terminal that a real agent has opened.
func TestTerminalsOfRealAgents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ agent, api, model, prefix string }{
		{"claude", "ANTHROPIC", "claude-sonnet-4-5", "mcp__penstock__"},
		{"codex", "OPENAI", "gpt-5.5", "mcp__penstock/"},
	} {
		t.Run(tt.agent, func(t *testing.T) {
			if _, err := exec.LookPath(tt.agent); err != nil {
				skip(t, tt.agent, "no %s in PATH", tt.agent)
			}
			f := newFixture(t)
			model := opens(tt.prefix)
			upstream := httptest.NewServer(model)
			t.Cleanup(upstream.Close)
			f.env = []string{tt.api + "_API_KEY=sk-real-" + rand.Text(), "PENSTOCK_MODEL_" + tt.api + "_URL=" + upstream.URL}
			f.serve("--slots", "1")
			id := strings.TrimSpace(f.run("submit", "OPEN-IT", "--repo", f.repo, "--agent", tt.agent, "--model", tt.model, "--terminals", "--max-attempts", "1", "-o", "id"))
			looks := f.looksAt(id, "1", "--read-only")
			looks.sees("from the agent")
			looks.sees("got the model")
			types := f.looksAt(id, "2")
			types.types("with a person\n")
			f.run("wait", "--timeout", patience(120), id)
			events := f.events(id)
			requests := model.Requests()
			if !slices.ContainsFunc(requests, func(r agenttest.Request) bool { return strings.Contains(r.Last, "went with a person") }) {
				t.Errorf("the agent has not seen what a person typed, but %s", requests[len(requests)-1].Last)
			}
			if tools := requests[0].Tools; tt.agent == "claude" && !slices.Contains(tools, "mcp__penstock__terminal_create") {
				t.Errorf("the first turn has the tools %q", tools)
			}
			if f.record(id).Outcome != jobs.Success || count(events, jobs.TerminalCreated) != 2 {
				t.Errorf("ended as %s after %d terminals", f.record(id).Outcome, count(events, jobs.TerminalCreated))
			}
		})
	}
}
