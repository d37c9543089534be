package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// An agent gets its terminals beside what the job's own arguments say, and only
// where the job wants them.
func TestTerminalsInPlans(t *testing.T) {
	l := launch("claude")
	l.Variable = "PENSTOCK_INSIDE"
	if got := flagValue(plan(t, l).Args, "--mcp-config"); got != `{"mcpServers":{}}` {
		t.Errorf("without: %s", got)
	}
	l.Job.Agent.Terminals = true
	const server = `{"mcpServers":{"penstock":{"alwaysLoad":true,"args":["terminals"],"command":"penstock"}}}`
	if p := plan(t, l); flagValue(p.Args, "--mcp-config") != server || !slices.Contains(p.Args, "--strict-mcp-config") {
		t.Errorf("claude: %q", p.Args)
	}
	l.Job.Agent.Args = []string{"--mcp-config", "x.json"}
	if p := plan(t, l); flagValue(p.Args, "--mcp-config") != server || !slices.Contains(p.Args, "x.json") || slices.Contains(p.Args, "--strict-mcp-config") {
		t.Errorf("claude with servers of the job: %q", p.Args)
	}
	l.Job.Agent.Args, l.Job.Agent.Name = nil, "codex"
	if all := strings.Join(plan(t, l).Args, " "); !strings.Contains(all, `mcp_servers.penstock={command="penstock",args=["terminals"],env_vars=["PENSTOCK_INSIDE"]`) {
		t.Errorf("codex: %s", all)
	}
	l.Inside, l.Penstock = "http://token@127.0.0.1:3127", "/penstock/bin/penstock"
	const told = `"mcpServers":[{"args":["terminals"],"command":"/penstock/bin/penstock","env":[{"name":"PENSTOCK_INSIDE","value":"http://token@127.0.0.1:3127"}],"name":"penstock"}]`
	if line := string(newACPTalk(l, "acp").begins()); !strings.Contains(line, told) {
		t.Errorf("acp: %s", line)
	}
}

func TestTerminalsAreRefused(t *testing.T) {
	agents := New(Config{Custom: map[string]Custom{"mine": {Protocol: "acp", Command: []string{"x"}}}})
	for name, refused := range map[string]bool{"claude": false, "codex": false, "mine": false, "command": false, "gemini": true, "opencode": true} {
		job := jobs.Job{Agent: jobs.Agent{Name: name, Terminals: true}}
		if err := agents.Able(job); (err != nil) != refused || refused && !strings.Contains(err.Error(), "agent.terminals") {
			t.Errorf("%s: %v", name, err)
		}
		job.Sandbox.Preset = "offline"
		if err := agents.Able(job); err == nil || !strings.Contains(err.Error(), "agent.terminals") {
			t.Errorf("%s, offline: %v", name, err)
		}
	}
}
