package acp

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
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

// options is a list of settings with the ones of these categories.
func options(categories ...string) string {
	var list []string
	for _, c := range categories {
		list = append(list, `{"id":"my-`+c+`","category":"`+c+`","currentValue":"v"}`)
	}
	return `"configOptions":[` + strings.Join(list, ",") + `]`
}

// replies checks what the agent is sent after a line of it: requests that have these words.
func replies(t *testing.T, r agent.Read, want ...string) {
	t.Helper()
	for i, line := range r.Reply {
		if i >= len(want) || !strings.Contains(string(line), want[i]) {
			t.Errorf("reply %d of %d is %s; want %q", i, len(r.Reply), line, want)
		}
	}
	if len(r.Reply) < len(want) {
		t.Errorf("got %d replies, want %q", len(r.Reply), want)
	}
}

// Which efforts there are depends on the model, so that is set before. The first prompt comes after both.
func TestEffortIsSetAfterTheModel(t *testing.T) {
	begin := func(session string) (agent.Decoder, agent.Read) {
		l := adaptertest.Launch("acp")
		l.Job.Agent.Model, l.Job.Agent.Effort = "large", "low"
		d := Adapter{}.Decoder(l)
		replies(t, adaptertest.Feed(d, `{"id":1,"result":{"protocolVersion":1}}`), "session/new")
		return d, adaptertest.Feed(d, `{"id":2,"result":{"sessionId":"s",`+session+`}}`)
	}
	d, r := begin(options("model"))
	replies(t, r, `"configId":"my-model","sessionId":"s","value":"large"`)
	replies(t, adaptertest.Feed(d, `{"id":3,"result":{`+options("model", "thought_level")+`}}`), `"configId":"my-thought_level","sessionId":"s","value":"low"`)
	replies(t, adaptertest.Feed(d, `{"id":4,"result":{}}`), "session/prompt")

	for name, second := range map[string]string{
		"not offered": `{"id":3,"result":{` + options("model") + `}}`,
		"refused":     `{"id":4,"error":{"code":1,"message":"unknown value"}}`,
	} {
		d, _ := begin(options("model", "thought_level"))
		if name == "refused" {
			replies(t, adaptertest.Feed(d, `{"id":3,"result":{}}`), "my-thought_level")
		}
		replies(t, adaptertest.Feed(d, second))
		if _, end := d.Exit(0, ""); end.Reason != jobs.InvalidJob || !strings.Contains(end.Message, "agent.effort") {
			t.Errorf("%s: ended %+v", name, end)
		}
	}
}

// While it runs, an effort is set at once, or after the model of the same message.
func TestEffortIsChanged(t *testing.T) {
	d := Adapter{}.Decoder(adaptertest.Launch("acp"))
	adaptertest.Feed(d, `{"id":1,"result":{"protocolVersion":1}}`)
	adaptertest.Feed(d, `{"id":2,"result":{"sessionId":"s",`+options("model")+`}}`) // its prompt is request 3
	speaker := d.(agent.Speaker)
	var refused *control.RefusedError
	if _, err := speaker.Set("a", control.Settings{Effort: "low"}); !errors.As(err, &refused) || refused.Code != control.Cannot {
		t.Errorf("an effort that is not offered: %v", err)
	}
	lines, err := speaker.Set("b", control.Settings{Model: "large", Effort: "low"})
	if err != nil || len(lines) != 1 || !strings.Contains(string(lines[0]), `"value":"large"`) {
		t.Fatalf("got %s, %v", lines, err)
	}
	replies(t, adaptertest.Feed(d, `{"id":4,"result":{`+options("model", "thought_level")+`}}`), `"value":"low"`)
	lines, err = speaker.Set("c", control.Settings{Effort: "high"})
	if err != nil || len(lines) != 1 || !strings.Contains(string(lines[0]), `"configId":"my-thought_level","sessionId":"s","value":"high"`) {
		t.Errorf("got %s, %v", lines, err)
	}
	adaptertest.Feed(d, `{"method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"config_option_update",`+options("model")+`}}}`)
	if _, err := speaker.Set("d", control.Settings{Effort: "low"}); err == nil {
		t.Error("it takes an effort that is offered no more")
	}
	if lines, err = speaker.Set("e", control.Settings{Model: "small", Effort: "low"}); err != nil || len(lines) != 1 {
		t.Fatalf("got %s, %v", lines, err)
	}
	if r := adaptertest.Feed(d, `{"id":7,"result":{}}`); len(r.Reply) != 0 || !strings.Contains(string(decode.JSON(r.Events)), "no choice of effort") {
		t.Errorf("a model without efforts: %s, %s", r.Reply, decode.JSON(r.Events))
	}
}
