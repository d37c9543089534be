package claude

import (
	"slices"
	"testing"

	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

// An agent gets its terminals beside what the job's own arguments say, and only where
// the job wants them.
func TestTerminalsInPlans(t *testing.T) {
	l := adaptertest.Launch("claude")
	l.Variable = "PENSTOCK_INSIDE"
	if got := adaptertest.FlagValue(adaptertest.Plan(t, Adapter{}, l).Args, "--mcp-config"); got != `{"mcpServers":{}}` {
		t.Errorf("without: %s", got)
	}
	l.Job.Agent.Terminals = true
	const server = `{"mcpServers":{"penstock":{"alwaysLoad":true,"args":["terminals"],"command":"penstock"}}}`
	if p := adaptertest.Plan(t, Adapter{}, l); adaptertest.FlagValue(p.Args, "--mcp-config") != server || !slices.Contains(p.Args, "--strict-mcp-config") {
		t.Errorf("%q", p.Args)
	}
	l.Job.Agent.Args = []string{"--mcp-config", "x.json"}
	if p := adaptertest.Plan(t, Adapter{}, l); adaptertest.FlagValue(p.Args, "--mcp-config") != server || !slices.Contains(p.Args, "x.json") || slices.Contains(p.Args, "--strict-mcp-config") {
		t.Errorf("with servers of the job: %q", p.Args)
	}
}
