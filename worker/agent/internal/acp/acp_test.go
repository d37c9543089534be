package acp_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/internal/acp"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/gate"
)

func TestMain(m *testing.M) {
	if os.Getenv("ACP_AGENT") != "" {
		beAgent(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// Without a person to ask, the jail decides.
func TestACP(t *testing.T) {
	for _, tt := range []struct {
		prompt  string
		c       agent.Custom
		set     func(*agent.Launch)
		reason  jobs.Reason
		message string
	}{
		{prompt: "EDIT", message: "told completed in mode careful"},
		{prompt: "hello", c: agent.Custom{Auth: "key"}, message: "told hello"},
		{prompt: "hello", c: agent.Custom{Auth: "other"}, reason: jobs.Unauthorized},
		{prompt: "REFUSE", reason: jobs.AgentFailed},
		{prompt: "hello", set: func(l *agent.Launch) { l.Job.Agent.Model = "gpt" }, reason: jobs.ModelNotFound},
		{prompt: "hello", set: func(l *agent.Launch) { l.Resume = "s" }, c: agent.Custom{Env: map[string]string{"ACP_AGENT": "forgets"}}, reason: jobs.AgentProtocol},
	} {
		agents, l := scriptedAgent(t, tt.prompt, tt.c)
		if tt.set != nil {
			tt.set(&l)
		}
		r := adaptertest.Unjailed(t, agents, l, t.TempDir())
		if r.End.Reason != tt.reason || !strings.Contains(r.Data(jobs.Message), tt.message) {
			t.Errorf("%s: ended %+v, said %s", tt.prompt, r.End, r.Data(jobs.Message))
			adaptertest.Log(t, r)
		}
		_, err := os.Stat(filepath.Join(l.Cwd, "hello.txt"))
		if made := err == nil; made != (tt.prompt == "EDIT") {
			t.Errorf("%s: made a file: %v", tt.prompt, made)
		}
	}
}

// A person refuses a permission and grants another one, sends prompts during a turn and
// after it, sets the mode and interrupts; a later process continues.
func TestACPInteractive(t *testing.T) {
	agents, l := scriptedAgent(t, "EDIT", agent.Custom{})
	l.Job.Agent.Interactive = true
	c := &adaptertest.Conversation{}
	set := jobs.NewID()
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		switch {
		case e.Kind == jobs.AskOpened:
			if _, _, err := speaker.Answer(control.Message{Options: []string{"Maybe"}}); err == nil {
				t.Error("it took an option that there is not")
			}
			_, lines, err := speaker.Answer(control.Message{Options: []string{"no"}})
			if err != nil {
				t.Error(err)
			}
			// This one waits for its turn.
			return append(lines, speaker.Say(jobs.NewID(), "WAIT")...)
		case e.Kind == jobs.ToolStarted && strings.Contains(string(e.Data), "c2"):
			lines, err := speaker.Set(set, control.Settings{Mode: "bold"})
			if err != nil {
				t.Error(err)
			}
			return lines
		case e.Kind == jobs.ControlReply && strings.Contains(string(e.Data), set):
			return speaker.Interrupt()
		case e.Kind == jobs.TurnEnded && strings.Contains(string(e.Data), "interrupted"):
			return speaker.Say(jobs.NewID(), "more")
		}
		return nil
	}
	r := adaptertest.Talk(t, agents, l, c)
	var how []string
	for _, e := range r.Events {
		if e.Kind == jobs.TurnEnded {
			how = append(how, adaptertest.DataOf[event.TurnEnded](t, e).Status)
		}
	}
	if !slices.Equal(how, []string{"ok", "interrupted", "ok"}) || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %v", r.End, how)
	}
	if got := r.Data(jobs.Message); !strings.Contains(got, "told failed in mode careful") || !strings.Contains(got, "told more in mode bold") {
		t.Errorf("said %s", got)
	}
	l.Resume, l.Attempt, l.Prompt, l.Job.Agent.Interactive = r.Total.Session, 2, "the check failed", false
	again := adaptertest.Unjailed(t, agents, l, t.TempDir())
	if got := again.Data(jobs.Message); again.End.Outcome != jobs.Success || strings.Contains(got, "before") || !strings.Contains(got, "told the check failed") {
		t.Errorf("resumed: %+v, %s", again.End, got)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
		adaptertest.Log(t, again)
	}
}

func TestJailedACP(t *testing.T) {
	adaptertest.RequireJail(t)
	agents, l := scriptedAgent(t, "EDIT", agent.Custom{})
	r := adaptertest.Jailed(t, agents, l, adaptertest.Gated{Gate: adaptertest.NewGate(t, "anthropic", agenttest.New()), Session: gate.NewSession("s", adaptertest.JailKey, gate.Limits{})})
	if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "hello" || r.End.Outcome != jobs.Success {
		t.Errorf("file %q, %v, ended %+v", got, err, r.End)
		adaptertest.Log(t, r)
	}
}

// An agent that resumes tells what the whole session has cost. What the
// processes before it have counted is not counted again.
func TestASessionThatIsResumedCostsItsOwnPart(t *testing.T) {
	agents := agent.New(agent.Config{Custom: map[string]agent.Custom{"x": {Protocol: "acp", Command: []string{"/bin/x"}}}}, acp.Adapter{})
	adapter, err := agents.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	d := adapter.Decoder(agent.Launch{Job: jobs.Job{Prompt: "go on"}, ID: "j", Session: "j", Resume: "s", Cwd: "/workspace"})
	cost := func(usd string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":` + usd + `,"currency":"USD"}}}}`
	}
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`,
		cost("0.5"), `{"jsonrpc":"2.0","id":2,"result":{}}`, cost("0.75"),
	} {
		d.Line(agent.Line{Stream: agent.Stdout, Bytes: []byte(line)})
	}
	if got := d.Total().CostUSD; got != 0.25 {
		t.Errorf("it has cost %v USD, want 0.25", got)
	}
}

// Tokens that an agent tells of each call, and not at the end of the turn, are those of the turn. Where it tells
// both, they are counted once, and what it repeats of an earlier process is not counted.
func TestTokensOfCalls(t *testing.T) {
	agents := agent.New(agent.Config{Custom: map[string]agent.Custom{"x": {Protocol: "acp", Command: []string{"/bin/x"}}}}, acp.Adapter{})
	adapter, err := agents.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	call := func(input, output, cached int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":""},
			"_meta":{"usage":{"inputTokens":%d,"outputTokens":%d,"totalTokens":%d,"thoughtTokens":3,"cachedReadTokens":%d}}}}}`, input, output, input+output, cached)
	}
	end := func(id int, usage string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"stopReason":"end_turn"%s}}`, id, usage)
	}
	for told, want := range map[string]jobs.Usage{
		"": {Input: 260, Output: 30, CacheRead: 40},
		`,"usage":{"inputTokens":7,"outputTokens":2,"thoughtTokens":1}`: {Input: 7, Output: 3},
	} {
		d := adapter.Decoder(agent.Launch{Job: jobs.Job{Prompt: "go on"}, ID: "j", Session: "j", Resume: "s", Cwd: "/workspace"})
		var ends []event.TurnEnded
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`,
			call(1000, 1000, 0), `{"jsonrpc":"2.0","id":2,"result":{}}`,
			call(100, 10, 40), call(200, 20, 0), end(3, told),
		} {
			for _, e := range d.Line(agent.Line{Stream: agent.Stdout, Bytes: []byte(line)}).Events {
				if data, ok := e.Payload.(event.TurnEnded); ok {
					ends = append(ends, data)
				}
			}
		}
		if len(ends) != 1 || ends[0].Usage != want || d.Total().Usage != want {
			t.Errorf("the end tells %q: the turns have used %+v, in all %+v, want %+v", told, ends, d.Total().Usage, want)
		}
	}
}

// An agent of the protocol that offers to take images gets them.
func TestACPTakesImages(t *testing.T) {
	agents, l := scriptedAgent(t, "hello", agent.Custom{Env: map[string]string{"ACP_AGENT": "sees"}})
	l.Job.Agent.Interactive, l.Images = true, []control.Image{adaptertest.Picture(t, 10)}
	c := &adaptertest.Conversation{}
	adaptertest.ShowImages(t, c, "look at this", adaptertest.Picture(t, 20), adaptertest.Picture(t, 30))
	r := adaptertest.Talk(t, agents, l, c)
	messages := r.Data(jobs.Message)
	for _, want := range []string{
		"told hello " + contract.DataURL(adaptertest.Picture(t, 10)) + " in mode",
		"told look at this " + contract.DataURL(adaptertest.Picture(t, 20)) + " " + contract.DataURL(adaptertest.Picture(t, 30)) + " in mode",
		"told  " + contract.DataURL(adaptertest.Picture(t, 20)) + " in mode",
	} {
		if !strings.Contains(messages, want) {
			t.Errorf("it did not say %.60s", want)
		}
	}
	if r.End.Outcome != jobs.Success || r.Count(jobs.Notice) != 0 || t.Failed() {
		adaptertest.Log(t, r)
	}
}

// One that does not offer it is not sent any. It refuses, and where it took them
// in an earlier process, the session and the agent are told what is missing.
func TestACPTakesNoImages(t *testing.T) {
	agents, l := scriptedAgent(t, "hello", agent.Custom{})
	l.Job.Agent.Interactive, l.Images = true, []control.Image{adaptertest.Picture(t, 10)}
	c := &adaptertest.Conversation{}
	refused := func(want control.Refusal) {
		err := c.Decoder.(agent.Speaker).TakesImages()
		if r, ok := errors.AsType[*control.RefusedError](err); !ok || r.Code != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	c.OnEvent = func(e event.Event) [][]byte {
		if e.Kind == jobs.TurnEnded {
			refused(control.Cannot)
		}
		return nil
	}
	r := adaptertest.Talk(t, agents, l, c)
	if got := r.Data(jobs.Message); !strings.Contains(got, "1 of the images of this message are left out") || strings.Contains(got, "base64") {
		t.Errorf("said %s", got)
	}
	if got := r.Data(jobs.Notice); !strings.Contains(got, "takes no images") {
		t.Errorf("the session was told %s", got)
	}
	adapter, err := agents.Get("mine")
	if err != nil {
		t.Fatal(err)
	}
	c.Decoder = adapter.Decoder(l)
	refused(control.NotReady)
}
