package claude_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
	"github.com/penstock-run/penstock/worker/agent/internal/claude"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bash(command string) agenttest.Step {
	return agenttest.Use("Bash", map[string]any{"command": command, "description": "run it"})
}

var question = map[string]any{"questions": []any{map[string]any{
	"question": "Which?", "header": "H", "multiSelect": false,
	"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}},
}}}

func TestRealClaude(t *testing.T) {
	agents, program := adaptertest.Program(t, claude.Adapter{})
	last := func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} }
	model := agenttest.New(
		agenttest.Script{On: "EDIT", Steps: []agenttest.Step{
			bash("printf 'hello\\n' > hello.txt; echo made"),
			agenttest.Use("Read", map[string]any{"file_path": "hello.txt"}),
			func(r agenttest.Request) agenttest.Reply {
				return agenttest.Reply{Calls: []agenttest.Call{{Name: "Edit", Input: map[string]any{
					"file_path": "hello.txt", "old_string": "hello", "new_string": "goodbye",
				}}}}
			},
			agenttest.Say("done"),
		}},
		agenttest.Script{On: "ASK", Steps: []agenttest.Step{agenttest.Use("AskUserQuestion", question), last}},
		agenttest.Script{On: "RECOVER", Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
			if r.Try < 2 {
				return agenttest.Reply{Status: 500, Error: "api_error"}
			}
			return agenttest.Reply{Text: "recovered"}
		}}},
		agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "authentication_error")}},
		agenttest.Script{On: "LIMIT", Steps: []agenttest.Step{bash("true")}},
		agenttest.Script{On: "LATER", Steps: []agenttest.Step{
			agenttest.Use("Bash", map[string]any{"command": "sleep 1; touch late", "run_in_background": true, "description": "later"}),
			agenttest.Say("begun"),
		}},
		agenttest.Script{On: "SPENT", Steps: []agenttest.Step{agenttest.Fail(400, "invalid_request_error")}},
		agenttest.Script{On: "SLASH", Steps: []agenttest.Step{agenttest.Say("no command")}},
		agenttest.Script{On: "BIG", Steps: []agenttest.Step{agenttest.Use("Write", map[string]any{
			"file_path": "big.txt", "content": strings.Repeat("0123456789abcde\n", 40_000)}), agenttest.Say("big")}},
	)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close) // the tests below run after this function has returned

	tests := []struct {
		prompt string
		set    func(l *agent.Launch)
		reason jobs.Reason
		check  func(t *testing.T, l agent.Launch, r adaptertest.Run)
	}{
		{prompt: "EDIT", check: func(t *testing.T, l agent.Launch, r adaptertest.Run) {
			got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt"))
			if err != nil || string(got) != "goodbye\n" {
				t.Errorf("file %q, err %v", got, err)
			}
			if r.Count(jobs.ToolStarted) != 3 || r.Count(jobs.ToolEnded) != 3 || r.Count(jobs.FileChanged) != 1 {
				t.Errorf("%d tools began, %d ended, %d files changed", r.Count(jobs.ToolStarted), r.Count(jobs.ToolEnded), r.Count(jobs.FileChanged))
			}
			if r.Total.Usage.Input < 4000 || r.Total.Usage.Output != 200 || r.Total.Session != l.Session {
				t.Errorf("total %+v", r.Total)
			}
		}},
		{prompt: "ASK", check: func(t *testing.T, _ agent.Launch, r adaptertest.Run) {
			if r.Count(jobs.AskOpened) != 1 || r.Count(jobs.AskClosed) != 1 || !strings.Contains(r.Data(jobs.TurnEnded), "This is an unattended run") {
				t.Errorf("the model was told %s", r.Data(jobs.TurnEnded))
			}
		}},
		{prompt: "RECOVER", check: func(t *testing.T, _ agent.Launch, r adaptertest.Run) {
			if r.Count(jobs.RetryReported) == 0 || !strings.Contains(r.Data(jobs.TurnEnded), "recovered") {
				t.Errorf("turns %s", r.Data(jobs.TurnEnded))
			}
		}},
		{prompt: "DENIED", reason: jobs.Unauthorized, check: func(t *testing.T, _ agent.Launch, r adaptertest.Run) {
			if n := r.Count(jobs.RetryReported); n > 3 {
				t.Errorf("%d retries of what is hopeless", n)
			}
		}},
		{prompt: "LIMIT", reason: jobs.TurnLimit, set: func(l *agent.Launch) { l.Job.Agent.MaxTurns = 2 }},
		{prompt: "SPENT", reason: jobs.AgentFailed},
		{prompt: "LATER", check: func(t *testing.T, l agent.Launch, r adaptertest.Run) {
			if _, err := os.Stat(filepath.Join(l.Cwd, "late")); err != nil {
				t.Errorf("background work was not waited for: %v", err)
			}
		}},
		{prompt: "/clear SLASH", check: func(t *testing.T, _ agent.Launch, r adaptertest.Run) {
			if !strings.Contains(r.Data(jobs.TurnEnded), "no command") {
				t.Errorf("turns %s", r.Data(jobs.TurnEnded))
			}
		}},
		{prompt: "BIG", check: func(t *testing.T, l agent.Launch, r adaptertest.Run) {
			info, err := os.Stat(filepath.Join(l.Cwd, "big.txt"))
			if err != nil || info.Size() != 640_000 || r.Count(jobs.AgentRaw) != 0 {
				t.Errorf("file %v, err %v, %d lines not understood", info, err, r.Count(jobs.AgentRaw))
			}
		}},
		{prompt: "anything", set: func(l *agent.Launch) { l.Gate = "http://127.0.0.1:1" }, reason: jobs.ModelUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.prompt, func(t *testing.T) {
			t.Parallel()
			l := adaptertest.Prompted(t, "claude", tt.prompt, program)
			l.Gate = srv.URL
			if tt.set != nil {
				tt.set(&l)
			}
			r := adaptertest.Unjailed(t, agents, l, t.TempDir())
			if r.End.Reason != tt.reason {
				t.Errorf("ended %+v, want reason %q", r.End, tt.reason)
			}
			if tt.check != nil {
				tt.check(t, l, r)
			}
			if t.Failed() {
				adaptertest.Log(t, r)
			}
		})
	}
}

// A later attempt goes on where an earlier one ended, in another process.
func TestRealClaudeResumes(t *testing.T) {
	agents, program := adaptertest.Program(t, claude.Adapter{})
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Say("one"),
		func(r agenttest.Request) agenttest.Reply {
			return agenttest.Reply{Text: "two, after " + r.First + r.Last}
		},
	}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	home := t.TempDir()
	l := adaptertest.Prompted(t, "claude", "FIRST", program)
	l.Gate = srv.URL
	first := adaptertest.Unjailed(t, agents, l, home)
	if first.End.Outcome != jobs.Success || first.Total.Session != l.Session {
		t.Fatalf("ended %+v, %+v", first.End, first.Total)
	}
	again := l
	again.Attempt = 2
	if r := adaptertest.Unjailed(t, agents, again, home); r.End.Outcome != jobs.Success || r.Total.Session == l.Session {
		t.Errorf("another attempt: %+v, %+v", r.End, r.Total)
	}
	l.Attempt, l.Resume, l.Prompt = 3, first.Total.Session, "the check failed"
	r := adaptertest.Unjailed(t, agents, l, home)
	if r.End.Outcome != jobs.Success || r.Total.Session != first.Total.Session {
		t.Errorf("resumed: %+v, %+v", r.End, r.Total)
	}
	if got := r.Data(jobs.TurnEnded); !strings.Contains(got, "two, after") || !strings.Contains(got, "FIRST") || !strings.Contains(got, "the check failed") {
		t.Errorf("the model was told %s", got)
	}
	if r.Total.Usage.Output != 50 {
		t.Errorf("what was used before is counted again: %+v", r.Total)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

// A person answers the agent's question, and sends another prompt after its turn.
func TestRealClaudeInteractive(t *testing.T) {
	agents, program := adaptertest.Program(t, claude.Adapter{})
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{agenttest.Use("AskUserQuestion", question), adaptertest.Echo}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := adaptertest.Prompted(t, "claude", "FIRST", program)
	l.Gate = srv.URL
	l.Job.Agent.Interactive = true
	r := adaptertest.Talk(t, agents, l, &adaptertest.Conversation{Answers: map[string]control.Words{"Which?": {"B"}}, Say: []string{"/and more"}})
	turns := r.Data(jobs.TurnEnded)
	if r.Count(jobs.TurnEnded) != 2 || !strings.Contains(turns, `=\"B\"`) || !strings.Contains(turns, "/and more") || r.End.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %s", r.End, turns)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

// What Claude Code may always do it does not ask for again, and that is not
// written to the workspace.
func TestRealClaudePermission(t *testing.T) {
	agents, program := adaptertest.Program(t, claude.Adapter{})
	srv := httptest.NewServer(agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		adaptertest.Echo, bash("touch may"), bash("touch may"), bash("git init maynot"), adaptertest.Echo,
	}}))
	defer srv.Close()
	l := adaptertest.Prompted(t, "claude", "FIRST", program)
	l.Gate = srv.URL
	l.Job.Agent.Interactive = true
	c := &adaptertest.Conversation{}
	begun := false
	var asked []control.Ask
	c.OnEvent = func(e event.Event) [][]byte {
		speaker := c.Decoder.(agent.Speaker)
		if e.Kind == jobs.TurnEnded && !begun {
			begun = true
			return append(adaptertest.Set(t, speaker, control.Settings{Mode: "default"}), speaker.Say(jobs.NewID(), "now")...)
		}
		if e.Kind != jobs.AskOpened {
			return nil
		}
		asked = append(asked, adaptertest.DataOf[control.Ask](t, e))
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
	r := adaptertest.Talk(t, agents, l, c)
	entries, err := os.ReadDir(l.Cwd)
	if err != nil || len(entries) != 1 || entries[0].Name() != "may" {
		t.Errorf("the workspace has %v, err %v", entries, err)
	}
	if len(asked) != 2 || !strings.Contains(string(asked[0].Input), "touch may") || !strings.Contains(string(asked[1].Input), "git init maynot") || r.End.Outcome != jobs.Success {
		t.Errorf("it asked %+v, ended %+v", asked, r.End)
	}
	if t.Failed() {
		adaptertest.Log(t, r)
	}
}

// The first prompt of a process may have images, as those that are said later.
func TestRealClaudeSeesImages(t *testing.T) {
	agents, program := adaptertest.Program(t, claude.Adapter{})
	model := agenttest.New()
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := adaptertest.Prompted(t, "claude", "FIRST", program)
	l.Gate = srv.URL
	l.Job.Agent.Interactive, l.Images = true, []control.Image{adaptertest.Picture(t, 10)}
	adaptertest.SeesImages(t, agents, l, model)
}
