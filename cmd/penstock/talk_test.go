package main

import (
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// choices is a question of Claude Code's tool.
func choices(text string, several bool) map[string]any {
	var options []any
	for _, label := range []string{"Red", "Green", "Blue"} {
		options = append(options, map[string]any{"label": label, "description": "the colour"})
	}
	return map[string]any{"question": text, "header": text[:4], "multiSelect": several, "options": options}
}

// ask has the model ask.
func ask(questions ...any) agenttest.Step {
	return agenttest.Use("AskUserQuestion", map[string]any{"questions": questions})
}

// A talk is a job of the real Claude Code with a person who talks to it.
type talk struct {
	*fixture
	id string
}

// seen waits for the nth event of a kind, and returns its data.
func (k talk) seen(kind jobs.Kind, n int) string {
	k.Helper()
	var found string
	k.eventually(60*time.Second, string(kind), func() bool {
		left := n
		for _, e := range k.events(k.id) {
			if e.Kind == kind {
				if left--; left == 0 {
					found = string(e.Data)
				}
			}
		}
		return left <= 0
	})
	return found
}

func (k talk) has(text string, words ...string) {
	k.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			k.Errorf("%q is not in %s", word, text)
		}
	}
}

// rests waits until no turn of a session runs: an agent that is stopped within one has
// not done all that the turn would.
func (f *fixture) rests(id string) {
	f.Helper()
	f.eventually(60*time.Second, "its turn has ended", func() bool {
		rests := false
		for _, e := range f.events(id) {
			rests = e.Kind == jobs.TurnEnded || rests && e.Kind != jobs.TurnStarted
		}
		return rests
	})
}

// The real Claude Code is told more after its turn and within one, asks and is
// answered, is interrupted, set to another model, and stopped in the end. Its
// change is the job's.
func TestTalkToClaude(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	within, hanging := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(hanging) })
	last := func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} }
	model := agenttest.New(agenttest.Script{On: "CONVERSE", Steps: []agenttest.Step{
		agenttest.Use("Write", map[string]any{"file_path": "/workspace/made.txt", "content": "made\n"}),
		agenttest.Say("written"),
		func(agenttest.Request) agenttest.Reply {
			<-within
			return agenttest.Reply{Calls: []agenttest.Call{{Name: "Bash", Input: map[string]any{"command": "echo ran", "description": "run"}}}}
		},
		last,
		ask(choices("Paint it?", false)),
		ask(choices("Both sides?", true), choices("Tell me why?", false)),
		ask(choices("Anything else?", false)),
		last,
		func(r agenttest.Request) agenttest.Reply {
			if r.Try == 0 {
				<-hanging
			}
			return agenttest.Reply{Text: "on again"}
		},
	}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	t.Cleanup(release)
	f.env = []string{"ANTHROPIC_API_KEY=" + keyPrefix + "talk", "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	f.serve("--slots", "1")
	k := talk{f, strings.TrimSpace(f.run("submit", "CONVERSE", "--agent", "claude", "--interactive", "--repo", f.repo, "-o", "id"))}

	k.seen(jobs.TurnEnded, 1)
	f.run("send", k.id, "the second")
	k.seen(jobs.TurnStarted, 2)
	f.run("send", k.id, "the third, within the turn")
	close(within)
	k.has(k.seen(jobs.TurnEnded, 2), "LAST", "the third, within the turn")

	f.run("send", k.id, "now ask")
	k.has(k.seen(jobs.AskOpened, 1), "Paint it?", "Green")
	if said := f.run("logs", k.id); !strings.Contains(said, "? Paint it?") || !strings.Contains(said, "penstock answer "+k.id) {
		t.Errorf("the question is not shown: %s", said)
	}
	f.refused(6, []string{"Purple", "Red, Green, Blue"}, "answer", k.id, "--option", "Purple")
	f.run("answer", k.id, "--option", "Green")
	k.seen(jobs.AskOpened, 2)
	f.refused(6, []string{"2 questions"}, "answer", k.id, "--text", "x")
	f.refused(6, []string{"question 1", "Purple", "Red, Green, Blue"}, "answer", k.id, "--answer", "1=Red", "--answer", "1=Purple", "--answer", "2=because")
	f.refused(6, []string{"question 1", "twice"}, "answer", k.id, "--answer", "1=Red", "--answer", "1=red", "--answer", "2=because")
	f.refused(6, []string{"question 2", "only one"}, "answer", k.id, "--answer", "1=Red", "--answer", "2=Red", "--answer", "2=Blue")
	f.run("answer", k.id, "--answer", "1=Red", "--answer", "1=Blue", "--answer", "2=because")
	k.seen(jobs.AskOpened, 3)
	f.run("answer", k.id, "--text", "words of my own")
	k.has(k.seen(jobs.TurnEnded, 3), "words of my own")
	var results string
	for _, e := range f.events(k.id) {
		if e.Kind == jobs.ToolEnded {
			results += string(e.Data)
		}
	}
	k.has(results, `=\"Green\"`, `=\"Red, Blue\"`, `=\"because\"`)

	f.run("send", k.id, "now hang")
	k.seen(jobs.TurnStarted, 4)
	f.run("job", "interrupt", k.id)
	k.has(k.seen(jobs.TurnEnded, 4), `"interrupted"`)
	release()
	f.run("job", "set", k.id, "--model", "claude-haiku-4-5", "--effort", "low")
	f.run("job", "raw", k.id, `{"type":"control_request","request":{"subtype":"mcp_status"}}`)
	f.refused(6, []string{"initialize"}, "job", "raw", k.id, `{"type":"control_request","request":{"subtype":"initialize"}}`)
	f.run("send", k.id, "go on")
	k.has(k.seen(jobs.TurnEnded, 5), "on again")
	for _, e := range f.events(k.id) {
		if e.Kind == jobs.ControlReply && !strings.Contains(string(e.Data), `"ok":true`) {
			t.Errorf("refused by the agent: %s", e.Data)
		}
	}
	requests := model.Requests()
	if got := requests[len(requests)-1].Model; got != "claude-haiku-4-5" {
		t.Errorf("it goes on with model %s", got)
	}

	f.run("job", "stop", k.id)
	f.run("wait", k.id, "--timeout", patience(60))
	if patch := f.run("job", "diff", k.id); !strings.Contains(patch, "+made") {
		t.Errorf("the patch is %q", patch)
	}
	f.refused(6, []string{"has finished", "only a prompt brings it back"}, "answer", k.id, "--text", "late")
	f.gapless(f.events(k.id))
}

// A waiting job has no agent to talk to, and later it has one.
func TestTalkToAJobThatWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve()
	id := f.submit("sleep 60")
	f.refused(8, []string{"no agent runs yet"}, "send", id, "hello", "--timeout", patience(1))
	f.worker("--slots", "1")
	f.refused(6, []string{"takes one prompt"}, "send", id, "hello")
	f.refused(2, []string{"id:"}, "send", id, "hello", "--id", "1")
	f.refused(5, []string{"not found"}, "send", jobs.NewID(), "hello")
	f.run("job", "stop", id)
	if _, code, told := f.try("wait", id, "--timeout", patience(30)); code != 3 || !strings.Contains(told, "cli stopped") {
		t.Errorf("wait ended with %d: %s", code, told)
	}
}
