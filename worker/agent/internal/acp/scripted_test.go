package acp_test

import (
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/acp"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
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

// LoadSession repeats the earlier messages, as the protocol wants.
func (a *scripted) LoadSession(ctx context.Context, r sdk.LoadSessionRequest) (sdk.LoadSessionResponse, error) {
	if _, err := os.Stat("session"); err != nil {
		return sdk.LoadSessionResponse{}, err
	}
	return sdk.LoadSessionResponse{}, a.send(ctx, r.SessionId, sdk.UpdateAgentMessageText("said before"))
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

func (a *scripted) send(ctx context.Context, id sdk.SessionId, u sdk.SessionUpdate) error {
	<-a.ready
	return a.conn.SessionUpdate(ctx, sdk.SessionNotification{SessionId: id, Update: u})
}

// promptText is the text of a prompt, and its images as data URLs.
func promptText(prompt []sdk.ContentBlock) string {
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
	text := promptText(r.Prompt)
	switch {
	case strings.Contains(text, "EDIT"):
		call := sdk.ToolCallId("c1")
		if err := a.send(ctx, r.SessionId, sdk.StartEditToolCall(call, "edit", "hello.txt", "hello")); err != nil {
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
		if err := a.send(ctx, r.SessionId, sdk.UpdateToolCall(call, sdk.WithUpdateStatus(status))); err != nil {
			return sdk.PromptResponse{}, err
		}
		text = string(status)
	case strings.Contains(text, "WAIT"):
		if err := a.send(ctx, r.SessionId, sdk.StartReadToolCall("c2", "wait", "hello.txt")); err != nil {
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
		if err := a.send(ctx, r.SessionId, sdk.UpdateAgentMessageText(part)); err != nil {
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
	agents := agent.New(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"mine": c}}, acp.Adapter{})
	program, err := agents.Find("mine")
	if err != nil {
		t.Fatal(err)
	}
	return agents, adaptertest.Prompted(t, "mine", prompt, program)
}
