package codex_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/codex"
)

var question = map[string]any{"questions": []any{map[string]any{
	"id": "which", "header": "H", "question": "Which?",
	"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}},
}}}

// talkCodex is a launch of an interactive job with Codex, and the API behind it.
func talkCodex(t *testing.T, p agent.Program, scripts ...agenttest.Script) (agent.Launch, *agenttest.Model) {
	t.Helper()
	model := agenttest.New(scripts...)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	l := adaptertest.Prompted(t, "codex", "FIRST", p)
	l.Gate = srv.URL
	l.Job.Agent.Interactive, l.Job.Agent.Model = true, "gpt-5.5"
	return l, model
}

// A person answers the agent's question, and sends another prompt after its turn. A
// later process continues the conversation.
func TestRealCodexInteractive(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	questions := []any{question["questions"].([]any)[0], map[string]any{
		"id": "why", "header": "W", "question": "Why?", "options": []any{map[string]any{"label": "X", "description": "x"}, map[string]any{"label": "Y", "description": "y"}},
	}}
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Use("request_user_input", map[string]any{"questions": questions}), adaptertest.Echo,
	}})
	home := t.TempDir()
	r := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: home, Answers: map[string]control.Words{"Which?": {"B"}, "Why?": {"words of its own"}}, Say: []string{"/and more"}})
	turns := r.Data(jobs.TurnEnded)
	if r.Count(jobs.TurnEnded) != 2 || !strings.Contains(turns, `[\"B\"]`) || !strings.Contains(turns, "words of its own") || !strings.Contains(turns, "/and more") || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %s", r.End, turns)
	}
	if got := r.Data(jobs.InputState); strings.Count(got, "taken") != 2 {
		t.Errorf("taken up: %s", got)
	}
	if r.Total.Usage.Output != 150 || r.Total.Session == "" {
		t.Errorf("total %+v", r.Total)
	}
	l.Resume, l.Attempt, l.Prompt = r.Total.Session, 2, "the check failed"
	again := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Home: home})
	if again.End.Outcome != jobs.Success || again.Total.Session != r.Total.Session || !strings.Contains(again.Data(jobs.TurnEnded), "told the check failed") {
		t.Errorf("resumed: %+v, %+v, %s", again.End, again.Total, again.Data(jobs.TurnEnded))
	}
	if again.Total.Usage.Output != 50 {
		t.Errorf("what was used before is counted again: %+v", again.Total)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
		adaptertest.Log(t, again)
	}
}

// What is said within a turn is taken up in that turn, and an interrupt ends
// the turn, but not the process.
func TestRealCodexWithinATurn(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		run("until [ -e told ]; do sleep 0.1; done; echo released"), adaptertest.Echo,
		run("sleep 1000"), adaptertest.Echo,
	}})
	c := &adaptertest.Conversation{}
	tools := 0
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		switch {
		case e.Kind == jobs.ToolStarted && tools == 0:
			tools++
			return speaker.Say(jobs.NewID(), "more, while it runs")
		case e.Kind == jobs.ControlReply && tools == 1:
			// The program has it, so its command may end.
			tools++
			if err := os.WriteFile(filepath.Join(l.Cwd, "told"), nil, 0o600); err != nil {
				t.Error(err)
			}
		case e.Kind == jobs.TurnEnded && tools == 2:
			tools++
			return append(adaptertest.Set(t, speaker, control.Settings{Model: "gpt-5.4"}), speaker.Say(jobs.NewID(), "sleep")...)
		case e.Kind == jobs.ToolStarted && tools == 3:
			tools++
			return speaker.Interrupt()
		case e.Kind == jobs.TurnEnded && tools == 4:
			tools++
			return speaker.Say(jobs.NewID(), "go on")
		}
		return nil
	}
	r := adaptertest.Talk(t, agents, l, c)
	var turns []event.TurnEnded
	for _, e := range r.Events {
		if e.Kind == jobs.TurnEnded {
			turns = append(turns, adaptertest.DataOf[event.TurnEnded](t, e))
		}
	}
	if len(turns) != 3 || !strings.Contains(turns[0].Result, "more, while it runs") || turns[1].Status != "interrupted" || !strings.Contains(turns[2].Result, "go on") || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %+v", r.End, turns)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

// It asks for permission where it shall, not again for what it may always do, and
// does only what it may.
func TestRealCodexPermission(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		adaptertest.Echo, run("touch may"), run("touch may"), run("touch maynot"), adaptertest.Echo,
	}})
	c := &adaptertest.Conversation{}
	begun := false
	asked := 0
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		if e.Kind == jobs.TurnEnded && !begun {
			begun = true
			return append(adaptertest.Set(t, speaker, control.Settings{Mode: "untrusted"}), speaker.Say(jobs.NewID(), "now")...)
		}
		if e.Kind != jobs.AskOpened {
			return nil
		}
		asked++
		if _, _, err := speaker.Answer(control.Message{Options: []string{"4"}}); err == nil {
			t.Error("a permission took an option that was not offered")
		}
		answer := control.Message{Deny: true}
		if asked == 1 {
			answer = control.Message{Options: []string{"always allow"}}
		}
		events, lines, err := speaker.Answer(answer)
		if err != nil || len(events) != 1 {
			t.Errorf("%+v, %v", events, err)
		}
		return lines
	}
	r := adaptertest.Talk(t, agents, l, c)
	_, may := os.Stat(filepath.Join(l.Cwd, "may"))
	_, maynot := os.Stat(filepath.Join(l.Cwd, "maynot"))
	if asked != 2 || may != nil || maynot == nil || r.End.Outcome != jobs.Success {
		t.Errorf("asked %d times, %v, %v, ended %+v", asked, may, maynot, r.End)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

// The settings of a repository are not read, and what cannot begin ends.
func TestRealCodexDoesNotTrust(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	l, _ := talkCodex(t, program, agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "invalid_api_key")}})
	made := filepath.Join(l.Cwd, "made")
	if err := os.Mkdir(filepath.Join(l.Cwd, ".codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	settings := "[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"" + made + "\"]\n"
	if err := os.WriteFile(filepath.Join(l.Cwd, ".codex", "config.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	r := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{})
	if _, err := os.Stat(made); err == nil || r.End.Outcome != jobs.Success {
		t.Errorf("the repository's server was started, or not: %v; ended %+v", err, r.End)
	}
	denied := l
	denied.Prompt = "DENIED"
	if r := adaptertest.Talk(t, agents, denied, &adaptertest.Conversation{}); r.End.Reason != jobs.Unauthorized {
		t.Errorf("ended %+v", r.End)
		adaptertest.Log(t, r)
	}
	l.Resume = jobs.NewID()
	if r := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{}); r.End.Reason != jobs.AgentProtocol || !strings.Contains(r.End.Message, l.Resume) {
		t.Errorf("ended %+v", r.End)
		adaptertest.Log(t, r)
	}
}

// The program compacts its conversation when it is asked to, says so, and goes on.
func TestRealCodexCompacts(t *testing.T) {
	agents, program := adaptertest.Program(t, codex.Adapter{})
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{adaptertest.Echo}})
	c := &adaptertest.Conversation{}
	turns, compacted := 0, false
	var states []string
	var used event.Usage
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		switch e.Kind {
		case jobs.UsageReported:
			used = adaptertest.DataOf[event.Usage](t, e)
		case jobs.StateChanged:
			states = append(states, adaptertest.DataOf[event.StateChanged](t, e).State)
		case jobs.Notice:
			compacted = compacted || adaptertest.DataOf[event.Notice](t, e).Type == "compact_boundary"
		case jobs.TurnEnded:
			if turns++; turns == 1 {
				lines, err := speaker.Raw(jobs.NewID(), []byte(`{"method":"thread/compact/start","params":{}}`))
				if err != nil {
					t.Error(err)
				}
				return append(lines, speaker.Say(jobs.NewID(), "go on")...)
			}
		}
		return nil
	}
	r := adaptertest.Talk(t, agents, l, c)
	if !compacted || !slices.Contains(states, "compacting") || turns != 3 || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v after %d turns, compacted: %v, states %q", r.End, turns, compacted, states)
	}
	if used.Tokens.Context == nil || used.Tokens.Window == nil {
		t.Errorf("the last usage is %+v", used)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}
