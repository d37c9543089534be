package agent_test

import (
	"context"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/gate"
)

// A scripted is an agent that others could have written: the SDK's own side of
// the protocol, in a process of its own.
type scripted struct {
	sdk.Agent // what it does not have is never asked for
	conn      *sdk.AgentSideConnection
	ready     chan struct{} // closed when conn is set

	mu   sync.Mutex
	mode string // guarded by mu
}

func beAgent(in io.Reader, out io.Writer) {
	a := &scripted{mode: "careful", ready: make(chan struct{})}
	a.conn = sdk.NewAgentSideConnection(a, out, in)
	close(a.ready)
	<-a.conn.Done()
}

func (a *scripted) Initialize(context.Context, sdk.InitializeRequest) (sdk.InitializeResponse, error) {
	<-a.ready
	r := sdk.InitializeResponse{ProtocolVersion: sdk.ProtocolVersionNumber, AgentInfo: &sdk.Implementation{Name: "scripted", Version: "1"}}
	r.AgentCapabilities.LoadSession = os.Getenv("ACP_AGENT") != "forgets"
	r.AgentCapabilities.PromptCapabilities.Image = os.Getenv("ACP_AGENT") == "sees"
	return r, nil
}

func (a *scripted) NewSession(_ context.Context, r sdk.NewSessionRequest) (sdk.NewSessionResponse, error) {
	return sdk.NewSessionResponse{SessionId: sdk.SessionId("s-" + r.Cwd)}, os.WriteFile("session", []byte(r.Cwd), 0o600)
}

// LoadSession tells what was said before, as the protocol wants.
func (a *scripted) LoadSession(ctx context.Context, r sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	if _, err := os.Stat("session"); err != nil {
		return sdk.LoadSessionResponse{}, err
	}
	return sdk.LoadSessionResponse{}, a.says(ctx, r.SessionId, sdk.UpdateAgentMessageText("said before"))
}

func (a *scripted) Authenticate(_ context.Context, r sdk.AuthenticateRequest) (sdk.AuthenticateResponse, error) {
	if r.MethodId != "key" {
		return sdk.AuthenticateResponse{}, sdk.NewAuthRequired(nil)
	}
	return sdk.AuthenticateResponse{}, nil
}

func (a *scripted) SetSessionMode(_ context.Context, r sdk.SetSessionModeRequest) (sdk.SetSessionModeResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mode = string(r.ModeId)
	return sdk.SetSessionModeResponse{}, nil
}

func (a *scripted) Cancel(context.Context, sdk.CancelNotification) error { return nil }

func (a *scripted) says(ctx context.Context, id sdk.SessionId, u sdk.SessionUpdate) error {
	<-a.ready
	return a.conn.SessionUpdate(ctx, sdk.SessionNotification{SessionId: id, Update: u})
}

// said is the text of a prompt, and its images as data URLs.
func said(prompt []sdk.ContentBlock) string {
	text := ""
	for _, b := range prompt {
		if b.Text != nil {
			text += b.Text.Text
		} else {
			text += " data:" + b.Image.MimeType + ";base64," + b.Image.Data
		}
	}
	return text
}

// Prompt edits a file if it may, or waits to be interrupted.
func (a *scripted) Prompt(ctx context.Context, r sdk.PromptRequest) (sdk.PromptResponse, error) {
	text := said(r.Prompt)
	switch {
	case strings.Contains(text, "EDIT"):
		call := sdk.ToolCallId("c1")
		if err := a.says(ctx, r.SessionId, sdk.StartEditToolCall(call, "edit", "hello.txt", "hello")); err != nil {
			return sdk.PromptResponse{}, err
		}
		p, err := a.conn.RequestPermission(ctx, sdk.RequestPermissionRequest{
			SessionId: r.SessionId, ToolCall: sdk.ToolCallUpdate{ToolCallId: call, Title: sdk.Ptr("May I edit?")},
			Options: []sdk.PermissionOption{
				{Kind: sdk.PermissionOptionKindAllowOnce, Name: "Yes", OptionId: "y"}, {Kind: sdk.PermissionOptionKindRejectOnce, Name: "No", OptionId: "n"},
			},
		})
		if err != nil {
			return sdk.PromptResponse{}, err
		}
		status := sdk.ToolCallStatusFailed
		if s := p.Outcome.Selected; s != nil && s.OptionId == "y" {
			status = sdk.ToolCallStatusCompleted
			if err := os.WriteFile("hello.txt", []byte("hello"), 0o600); err != nil {
				return sdk.PromptResponse{}, err
			}
		}
		if err := a.says(ctx, r.SessionId, sdk.UpdateToolCall(call, sdk.WithUpdateStatus(status))); err != nil {
			return sdk.PromptResponse{}, err
		}
		text = string(status)
	case strings.Contains(text, "WAIT"):
		if err := a.says(ctx, r.SessionId, sdk.StartReadToolCall("c2", "wait", "hello.txt")); err != nil {
			return sdk.PromptResponse{}, err
		}
		<-ctx.Done()
		return sdk.PromptResponse{StopReason: sdk.StopReasonCancelled}, nil
	case strings.Contains(text, "REFUSE"):
		return sdk.PromptResponse{StopReason: sdk.StopReasonRefusal}, nil
	}
	a.mu.Lock()
	mode := a.mode
	a.mu.Unlock()
	for _, part := range []string{"told ", text, " in mode " + mode} {
		if err := a.says(ctx, r.SessionId, sdk.UpdateAgentMessageText(part)); err != nil {
			return sdk.PromptResponse{}, err
		}
	}
	return sdk.PromptResponse{StopReason: sdk.StopReasonEndTurn}, nil
}

// scriptedAgent is the launch of it as the agent "mine".
func scriptedAgent(t *testing.T, prompt string, c agent.Custom) (*agent.Agents, agent.Launch) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.Protocol, c.Command = "acp", []string{self}
	if c.Env == nil {
		c.Env = map[string]string{"ACP_AGENT": "yes"}
	}
	agents := agent.New(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"mine": c}})
	program, err := agents.Find("mine")
	if err != nil {
		t.Fatal(err)
	}
	return agents, prompted(t, "mine", prompt, program, "")
}

// Without a person to ask, the jail decides.
func TestACP(t *testing.T) {
	for _, tt := range []struct {
		prompt string
		c      agent.Custom
		set    func(*agent.Launch)
		reason jobs.Reason
		says   string
	}{
		{prompt: "EDIT", says: "told completed in mode careful"},
		{prompt: "hello", c: agent.Custom{Auth: "key"}, says: "told hello"},
		{prompt: "hello", c: agent.Custom{Auth: "other"}, reason: jobs.Unauthorized},
		{prompt: "REFUSE", reason: jobs.AgentFailed},
		{prompt: "hello", set: func(l *agent.Launch) { l.Job.Agent.Model = "gpt" }, reason: jobs.ModelNotFound},
		{prompt: "hello", set: func(l *agent.Launch) { l.Resume = "s" }, c: agent.Custom{Env: map[string]string{"ACP_AGENT": "forgets"}}, reason: jobs.AgentProtocol},
	} {
		agents, l := scriptedAgent(t, tt.prompt, tt.c)
		if tt.set != nil {
			tt.set(&l)
		}
		r := unjailed(t, agents, l, t.TempDir())
		if r.end.Reason != tt.reason || !strings.Contains(r.data(jobs.Message), tt.says) {
			t.Errorf("%s: ended %+v, said %s", tt.prompt, r.end, r.data(jobs.Message))
			transcript(t, r)
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
	c := &conversation{}
	set := jobs.NewID()
	c.hear = func(e event.Event) [][]byte {
		speaker := c.d.(agent.Speaker)
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
			return c.d.(agent.Speaker).Set(set, "", "bold")
		case e.Kind == jobs.ControlReply && strings.Contains(string(e.Data), set):
			return speaker.Interrupt()
		case e.Kind == jobs.TurnEnded && strings.Contains(string(e.Data), "interrupted"):
			return speaker.Say(jobs.NewID(), "more")
		}
		return nil
	}
	r := talk(t, agents, l, t.TempDir(), c)
	var how []string
	for _, e := range r.events {
		if e.Kind == jobs.TurnEnded {
			how = append(how, dataOf[event.TurnEnded](t, e).Status)
		}
	}
	if !slices.Equal(how, []string{"ok", "interrupted", "ok"}) || r.end.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %v", r.end, how)
	}
	if got := r.data(jobs.Message); !strings.Contains(got, "told failed in mode careful") || !strings.Contains(got, "told more in mode bold") {
		t.Errorf("said %s", got)
	}
	l.Resume, l.Attempt, l.Prompt, l.Job.Agent.Interactive = r.total.Session, 2, "the check failed", false
	again := unjailed(t, agents, l, t.TempDir())
	if got := again.data(jobs.Message); again.end.Outcome != jobs.Success || strings.Contains(got, "before") || !strings.Contains(got, "told the check failed") {
		t.Errorf("resumed: %+v, %s", again.end, got)
	}
	if t.Failed() {
		transcript(t, r)
		transcript(t, again)
	}
}

func TestJailedACP(t *testing.T) {
	requireJail(t)
	agents, l := scriptedAgent(t, "EDIT", agent.Custom{})
	r := jailed(t, agents, l, newGate(t, "anthropic", agenttest.New()), gate.NewSession("s", jailKey, gate.Limits{}))
	if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "hello" || r.end.Outcome != jobs.Success {
		t.Errorf("file %q, %v, ended %+v", got, err, r.end)
		transcript(t, r)
	}
}

// opencode speaks the protocol in interactive jobs.
func TestRealOpencodeInteractive(t *testing.T) {
	agents, program := requireProgram(t, "opencode")
	run := func(command string) agenttest.Step {
		return agenttest.Use("bash", map[string]any{"command": command, "description": "run it"})
	}
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{run("echo hello > hello.txt"), told, run("sleep 1000"), told}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := prompted(t, "opencode", "FIRST", program, srv.URL)
	l.Job.Agent.Interactive, l.Job.Agent.Model = true, "claude-sonnet-4-5"
	c := &conversation{}
	n := 0
	c.hear = func(e event.Event) [][]byte {
		switch {
		case e.Kind == jobs.ToolStarted && n == 0:
			n++ // it waits for its turn
			return c.d.(agent.Speaker).Say(jobs.NewID(), "sleep")
		case e.Kind == jobs.ToolStarted && n == 1:
			n++
			return c.d.(agent.Speaker).Interrupt()
		case e.Kind == jobs.TurnEnded && n == 2:
			n++
			return c.d.(agent.Speaker).Say(jobs.NewID(), "go on")
		}
		return nil
	}
	home := t.TempDir()
	r := talk(t, agents, l, home, c)
	var how []string
	for _, e := range r.events {
		if e.Kind == jobs.TurnEnded {
			how = append(how, dataOf[event.TurnEnded](t, e).Status)
		}
	}
	if _, err := os.Stat(filepath.Join(l.Cwd, "hello.txt")); err != nil || !slices.Equal(how, []string{"ok", "interrupted", "ok"}) || r.end.Outcome != jobs.Success {
		t.Errorf("%v, turns %q, ended %+v", err, how, r.end)
	}
	l.Resume, l.Attempt, l.Prompt = r.total.Session, 2, "the check failed"
	again := talk(t, agents, l, home, &conversation{})
	if again.end.Outcome != jobs.Success || !strings.Contains(again.data(jobs.Message), "told the check failed") {
		t.Errorf("resumed: %+v, %s", again.end, again.data(jobs.Message))
	}
	if t.Failed() {
		transcript(t, r)
		transcript(t, again)
	}
}

// An agent that resumes tells what the whole session has cost. What the
// processes before it have counted is not counted again.
func TestASessionThatIsResumedCostsItsOwnPart(t *testing.T) {
	agents := agent.New(agent.Config{Custom: map[string]agent.Custom{"x": {Protocol: "acp", Command: []string{"/bin/x"}}}})
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
