package conversation

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/capsule"
	"github.com/penstock-run/penstock/worker/internal/images"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// again is the conversation of a second attempt, whose first was told of three prompts.
func again(t *testing.T, begun *jobs.Capsule) *Conversation {
	t.Helper()
	secrets, _ := redact.New(nil)
	c := New(Config{Record: jobs.Record{ID: "job", Attempt: 2}, Secrets: secrets, Tell: func(...event.Event) {}})
	c.begun, c.Prompts.reloaded = begun, map[string]images.Prompt{}
	for _, id := range []string{"1", "2", "3"} {
		c.Prompts.said = append(c.Prompts.said, control.Input{Input: id})
		c.Prompts.reloaded[id] = images.Prompt{ID: id, Text: "prompt " + id}
	}
	if begun != nil {
		c.Prompts.begin(begun.Heard)
	}
	return c
}

func ids(prompts []images.Prompt) (ids []string) {
	for _, p := range prompts {
		ids = append(ids, p.ID)
	}
	return ids
}

// Each prompt that the conversation has not heard is told once, in the agent's first
// prompt or behind it, and counts as heard when the agent has taken it up.
func TestEachPromptIsToldOnce(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		begun   *jobs.Capsule
		listens bool
		input   string   // the prompt that the first one is
		rest    []string // told behind it
	}{
		{"anew, to an agent that listens", nil, true, "", []string{"1", "2", "3"}},
		{"anew, to one that does not", nil, false, "", nil},
		{"after a turn", &jobs.Capsule{Epoch: 1, Heard: []string{"1"}}, true, "2", []string{"3"}},
		{"within a turn", &jobs.Capsule{Epoch: 1, Open: true, Heard: []string{"1"}}, true, "", []string{"2", "3"}},
		{"after a turn, to one that does not listen", &jobs.Capsule{Epoch: 1, Heard: []string{"1", "2"}}, false, "3", nil},
		{"all is heard", &jobs.Capsule{Epoch: 1, Heard: []string{"1", "2", "3"}}, true, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := again(t, tt.begun)
			l := c.Launch(agent.Launch{}, tt.listens)
			rest := ids(c.Prompts.Rest())
			if l.Input != tt.input || !slices.Equal(rest, tt.rest) {
				t.Errorf("the first prompt is %q, and behind it come %q; want %q, %q", l.Input, rest, tt.input, tt.rest)
			}
			taken := []event.Event{event.Make(event.TurnStarted{})}
			for _, id := range append(rest, "unknown") {
				taken = append(taken, event.Make(event.InputState{Input: id, State: "taken"}))
			}
			c.Prompts.Note(taken)
			c.Prompts.Note(taken)
			if heard := slices.Sorted(slices.Values(c.Prompts.Heard())); !slices.Equal(heard, []string{"1", "2", "3"}) {
				t.Errorf("heard %q, want each once", heard)
			}
		})
	}
}

// A job that is bound to a conversation ends where that cannot go on; another begins anew.
func TestABoundJobDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	for _, resume := range []uint64{0, 7} {
		c := again(t, nil)
		c.cfg.Record.Resume, c.cfg.Lost = resume, true
		_, why, err := c.Find(context.Background(), agent.About{Name: "forgetful"})
		if (err != nil) != (resume > 0) || why == "" {
			t.Errorf("resume %d: why %q, err %v", resume, why, err)
		}
	}
}

// What was decided about a permission answers one request for the same tool with the same input,
// however the agent writes it, and no other one.
func TestADecisionIsForOneRequest(t *testing.T) {
	t.Parallel()
	asked := func(id, tool, input string) control.Ask {
		return control.Ask{Ask: id, Type: "permission", Tool: tool, Input: json.RawMessage(input), Questions: json.RawMessage(`[{"question":"May it?","options":[{"label":"Allow","kind":"allow_once"},{"label":"No","kind":"reject_once"}]}]`)}
	}
	c := again(t, nil)
	c.Questions.past.Asks = []dialog.Asked{
		{Ask: asked("1", "Bash", `{"command":"go test","n":1}`), Answer: &control.Input{Options: []string{"Allow"}}},
		{Ask: asked("2", "Bash", `{"command":"rm"}`), Answer: &control.Input{Options: []string{"No"}}},
		{Ask: asked("3", "Bash", `{"command":"ls"}`)},
		{Ask: asked("4", "Bash", ``), Answer: &control.Input{}},
	}
	for i := range c.Questions.past.Asks {
		a := &c.Questions.past.Asks[i]
		a.Opened = time.Now()
		a.How = c.Questions.fate(*a, time.Now())
	}
	if c.Questions.bring(nil); len(c.Questions.Replies())+len(c.Questions.decided) > 0 {
		t.Errorf("a new conversation is told %+v", c.Questions.Replies())
	}
	c.Questions.bring(&jobs.Capsule{Asks: []string{"1", "2", "3", "4"}})
	for _, tt := range []struct{ tool, input, option string }{
		{"Bash", `{"command":"go test","n":2}`, ""}, {"Edit", `{"command":"go test","n":1}`, ""}, {"Bash", `{"command":"go test"}`, ""},
		{"Bash", `{ "n": 1, "command": "go\u0020test" }`, "Allow"}, {"Bash", `{"command":"go test","n":1}`, ""},
		{"Bash", `{"command":"rm"}`, "No"}, {"Bash", `{"command":"ls"}`, ""}, {"Bash", ``, ""}, {"Bash", `null`, ""},
	} {
		got, ok := c.Questions.Decided(asked("new", tt.tool, tt.input))
		if ok != (tt.option != "") || ok && (got.Ask != "new" || got.Verb != control.Answer || !slices.Equal(got.Options, []string{tt.option})) {
			t.Errorf("%s %s: %+v, %t; want %q", tt.tool, tt.input, got, ok, tt.option)
		}
	}
	replies := c.Questions.Replies()
	if len(replies) < 2 || replies[0].Declined || !replies[1].Declined || replies[0].Tool != "Bash" {
		t.Errorf("the agent is told %+v", replies)
	}
	if a := c.Questions.past.Asks; a[0].How != "answered" || a[1].How != "declined" || a[2].How != "withdrawn" {
		t.Errorf("closed as %s, %s, %s", a[0].How, a[1].How, a[2].How)
	}
}

// Without a home or files of the conversation nothing is stored, and nothing is asked of the store.
func TestNoCapsuleWithoutAConversation(t *testing.T) {
	t.Parallel()
	c := again(t, nil)
	files := capsule.Files{Paths: []capsule.Pattern{"*.jsonl"}}
	for _, at := range []struct {
		home  string
		files capsule.Files
		id    string
	}{{"", files, "c"}, {t.TempDir(), capsule.Files{}, "c"}, {t.TempDir(), files, ""}} {
		c.home, c.files = at.home, at.files
		if c.Store(t.Context(), Position{Conversation: at.id}, "", nil) {
			t.Errorf("a capsule was stored of %+v", at)
		}
	}
}
