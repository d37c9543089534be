package agent_test

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// told ends a turn with what the model was told last.
func told(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "told " + r.Last} }

var codexQuestion = map[string]any{"questions": []any{map[string]any{
	"id": "which", "header": "H", "question": "Which?",
	"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}},
}}}

// talkCodex is a launch of an interactive job with Codex, and the API behind it.
func talkCodex(t *testing.T, p agent.Program, scripts ...agenttest.Script) (agent.Launch, *agenttest.Model) {
	t.Helper()
	model := agenttest.New(scripts...)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	l := prompted(t, "codex", "FIRST", p, srv.URL)
	l.Job.Agent.Interactive, l.Job.Agent.Model = true, "gpt-5.5"
	return l, model
}

// A person answers the agent's question, and sends another prompt after its turn. A
// later process continues the conversation.
func TestRealCodexInteractive(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	questions := []any{codexQuestion["questions"].([]any)[0], map[string]any{
		"id": "why", "header": "W", "question": "Why?", "options": []any{map[string]any{"label": "X", "description": "x"}, map[string]any{"label": "Y", "description": "y"}},
	}}
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Use("request_user_input", map[string]any{"questions": questions}), told,
	}})
	home := t.TempDir()
	r := talk(t, agents, l, home, &conversation{answers: map[string]control.Words{"Which?": {"B"}, "Why?": {"words of its own"}}, say: []string{"/and more"}})
	turns := r.data(jobs.TurnEnded)
	if r.count(jobs.TurnEnded) != 2 || !strings.Contains(turns, `[\"B\"]`) || !strings.Contains(turns, "words of its own") || !strings.Contains(turns, "/and more") || r.end.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %s", r.end, turns)
	}
	if got := r.data(jobs.InputState); strings.Count(got, "taken") != 2 {
		t.Errorf("taken up: %s", got)
	}
	if r.total.Usage != (jobs.Usage{Input: 3000, Output: 150}) || r.total.Session == "" {
		t.Errorf("total %+v", r.total)
	}
	l.Resume, l.Attempt, l.Prompt = r.total.Session, 2, "the check failed"
	again := talk(t, agents, l, home, &conversation{})
	if again.end.Outcome != jobs.Success || again.total.Session != r.total.Session || !strings.Contains(again.data(jobs.TurnEnded), "told the check failed") {
		t.Errorf("resumed: %+v, %+v, %s", again.end, again.total, again.data(jobs.TurnEnded))
	}
	if again.total.Usage.Input != 1000 {
		t.Errorf("what was used before is counted again: %+v", again.total)
	}
	if t.Failed() {
		transcript(t, r)
		transcript(t, again)
	}
}

// What is said within a turn is taken up in that turn, and an interrupt ends
// the turn, but not the process.
func TestRealCodexWithinATurn(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		codexRun("until [ -e told ]; do sleep 0.1; done; echo released"), told,
		codexRun("sleep 1000"), told,
	}})
	c := &conversation{}
	tools := 0
	c.hear = func(e event.Event) [][]byte {
		speaker := c.d.(agent.Speaker)
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
			return append(c.d.(agent.Speaker).Set(jobs.NewID(), "gpt-5.4", ""), speaker.Say(jobs.NewID(), "sleep")...)
		case e.Kind == jobs.ToolStarted && tools == 3:
			tools++
			return speaker.Interrupt()
		case e.Kind == jobs.TurnEnded && tools == 4:
			tools++
			return speaker.Say(jobs.NewID(), "go on")
		}
		return nil
	}
	r := talk(t, agents, l, t.TempDir(), c)
	var turns []event.TurnEnded
	for _, e := range r.events {
		if e.Kind == jobs.TurnEnded {
			turns = append(turns, dataOf[event.TurnEnded](t, e))
		}
	}
	if len(turns) != 3 || !strings.Contains(turns[0].Result, "more, while it runs") || turns[1].Status != "interrupted" || !strings.Contains(turns[2].Result, "go on") || r.end.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %+v", r.end, turns)
	}
	if t.Failed() {
		transcript(t, r)
	}
}

// It asks for permission where it shall, not again for what it may always do, and
// does only what it may.
func TestRealCodexPermission(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	l, _ := talkCodex(t, program, agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		told, codexRun("touch may"), codexRun("touch may"), codexRun("touch maynot"), told,
	}})
	c := &conversation{}
	begun := false
	asked := 0
	c.hear = func(e event.Event) [][]byte {
		speaker := c.d.(agent.Speaker)
		if e.Kind == jobs.TurnEnded && !begun {
			begun = true
			return append(c.d.(agent.Speaker).Set(jobs.NewID(), "", "untrusted"), speaker.Say(jobs.NewID(), "now")...)
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
	r := talk(t, agents, l, t.TempDir(), c)
	_, may := os.Stat(filepath.Join(l.Cwd, "may"))
	_, maynot := os.Stat(filepath.Join(l.Cwd, "maynot"))
	if asked != 2 || may != nil || maynot == nil || r.end.Outcome != jobs.Success {
		t.Errorf("asked %d times, %v, %v, ended %+v", asked, may, maynot, r.end)
	}
	if t.Failed() {
		transcript(t, r)
	}
}

// The settings of a repository are not read, and what cannot begin ends.
func TestRealCodexDoesNotTrust(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	l, _ := talkCodex(t, program, agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "invalid_api_key")}})
	made := filepath.Join(l.Cwd, "made")
	if err := os.Mkdir(filepath.Join(l.Cwd, ".codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	settings := "[mcp_servers.evil]\ncommand = \"touch\"\nargs = [\"" + made + "\"]\n"
	if err := os.WriteFile(filepath.Join(l.Cwd, ".codex", "config.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	r := talk(t, agents, l, t.TempDir(), &conversation{})
	if _, err := os.Stat(made); err == nil || r.end.Outcome != jobs.Success {
		t.Errorf("the repository's server was started, or not: %v; ended %+v", err, r.end)
	}
	denied := l
	denied.Prompt = "DENIED"
	if r := talk(t, agents, denied, t.TempDir(), &conversation{}); r.end.Reason != jobs.Unauthorized {
		t.Errorf("ended %+v", r.end)
		transcript(t, r)
	}
	l.Resume = jobs.NewID()
	if r := talk(t, agents, l, t.TempDir(), &conversation{}); r.end.Reason != jobs.AgentProtocol || !strings.Contains(r.end.Message, l.Resume) {
		t.Errorf("ended %+v", r.end)
		transcript(t, r)
	}
}

func dataOf[T any](t *testing.T, e event.Event) (data T) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// What Claude Code may always do it does not ask for again, and that is not
// written to the workspace.
func TestRealClaudePermission(t *testing.T) {
	agents, program := requireProgram(t, "claude")
	srv := httptest.NewServer(agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		told, bash("touch may"), bash("touch may"), bash("git init maynot"), told,
	}}))
	defer srv.Close()
	l := prompted(t, "claude", "FIRST", program, srv.URL)
	l.Job.Agent.Interactive = true
	c := &conversation{}
	begun := false
	var asked []control.Ask
	c.hear = func(e event.Event) [][]byte {
		speaker := c.d.(agent.Speaker)
		if e.Kind == jobs.TurnEnded && !begun {
			begun = true
			return append(c.d.(agent.Speaker).Set(jobs.NewID(), "", "default"), speaker.Say(jobs.NewID(), "now")...)
		}
		if e.Kind != jobs.AskOpened {
			return nil
		}
		asked = append(asked, dataOf[control.Ask](t, e))
		answer := control.Message{Options: []string{"Reject"}}
		if len(asked) == 1 {
			answer = control.Message{Options: []string{"Always allow"}}
		}
		_, lines, err := speaker.Answer(answer)
		if err != nil {
			t.Error(err)
		}
		return lines
	}
	r := talk(t, agents, l, t.TempDir(), c)
	entries, err := os.ReadDir(l.Cwd)
	if err != nil || len(entries) != 1 || entries[0].Name() != "may" {
		t.Errorf("the workspace has %v, err %v", entries, err)
	}
	if len(asked) != 2 || !strings.Contains(string(asked[0].Input), "touch may") || !strings.Contains(string(asked[1].Input), "git init maynot") || r.end.Outcome != jobs.Success {
		t.Errorf("it asked %+v, ended %+v", asked, r.end)
	}
	if t.Failed() {
		transcript(t, r)
	}
}
