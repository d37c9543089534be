package acp

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

// An agent of the protocol gets its terminals with its session.
func TestTerminalsInPlans(t *testing.T) {
	l := adaptertest.Launch("acp")
	l.Variable, l.Inside, l.Penstock = "PENSTOCK_INSIDE", "http://token@127.0.0.1:3127", "/penstock/bin/penstock"
	l.Job.Agent.Terminals = true
	const want = `"mcpServers":[{"args":["terminals"],"command":"/penstock/bin/penstock","env":[{"name":"PENSTOCK_INSIDE","value":"http://token@127.0.0.1:3127"}],"name":"penstock"}]`
	reply := adaptertest.Feed(Adapter{}.Decoder(l), `{"id":1,"result":{"protocolVersion":1}}`).Reply
	if len(reply) != 1 || !strings.Contains(string(reply[0]), want) {
		t.Errorf("begins its session with %s", reply)
	}
}

func TestServersInPlans(t *testing.T) {
	l := adaptertest.Launch("acp")
	l.Job.Agent.MCPServers = map[string]jobs.MCPServer{"b": {Command: "x"}, "a": {Command: "y"}}
	const want = `"mcpServers":[{"args":["/run/penstock/mcp/a"],"command":"/bin/sh","env":[],"name":"a"},{"args":["/run/penstock/mcp/b"],"command":"/bin/sh","env":[],"name":"b"}]`
	reply := adaptertest.Feed(Adapter{}.Decoder(l), `{"id":1,"result":{"protocolVersion":1}}`).Reply
	if len(reply) != 1 || !strings.Contains(string(reply[0]), want) {
		t.Errorf("begins its session with %s", reply)
	}
}
