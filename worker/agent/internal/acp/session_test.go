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

// An agent that says it resumes sessions, and then does not know how, loads them; one that refuses to resume
// a session for another reason, or can load none, begins none.
func TestASessionThatCannotBeResumedIsLoaded(t *testing.T) {
	for _, tt := range []struct{ can, refusal, want string }{
		{`"loadSession":true,"sessionCapabilities":{"resume":{}}`, `{"code":-32601,"message":"Method not found"}`, `"method":"session/load"`},
		{`"loadSession":true,"sessionCapabilities":{"resume":{}}`, `{"code":-32002,"message":"no such session"}`, ""},
		{`"loadSession":false,"sessionCapabilities":{"resume":{}}`, `{"code":-32601,"message":"Method not found"}`, ""},
	} {
		l := adaptertest.Launch("acp")
		l.Resume = "earlier"
		d := Adapter{}.Decoder(l)
		begun := adaptertest.Feed(d, `{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{`+tt.can+`}}}`)
		if len(begun.Reply) != 1 || !strings.Contains(string(begun.Reply[0]), `"method":"session/resume"`) {
			t.Fatalf("begins with %s", begun.Reply)
		}
		refused := adaptertest.Feed(d, `{"id":2,"error":`+tt.refusal+`}`)
		if tt.want == "" {
			if _, end := d.Exit(0, ""); len(refused.Reply) != 0 || end.Outcome == jobs.Success {
				t.Errorf("%s, refused with %s: it goes on with %s, and ended %+v", tt.can, tt.refusal, refused.Reply, end)
			}
			continue
		}
		if len(refused.Reply) != 1 || !strings.Contains(string(refused.Reply[0]), tt.want) || !strings.Contains(string(refused.Reply[0]), `"sessionId":"earlier"`) {
			t.Errorf("%s, refused with %s: it goes on with %s, want %s", tt.can, tt.refusal, refused.Reply, tt.want)
		}
	}
}
