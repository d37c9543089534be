package agent

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

const tableHead = `# What the agents can do

This page is made from the program: ` + "`make generate`" + ` writes it. ` + "`penstock agent ls -o json`" + ` tells the same,
with the agents that a settings file adds. A job that asks for what its agent cannot do is refused when it is
submitted, and the field is named; see [Agents](../agents.md).

| ability | %s |
|---|%s
`

// TestReference holds docs/reference/agents.md against the adapters.
func TestReference(t *testing.T) {
	rows := []struct{ field, means string }{
		{"Interactive", "takes more prompts while it lives"},
		{"Questions", "asks, and goes on with the answer"},
		{"Interrupt", "a turn can be ended, and it lives on"},
		{"Resume", "a new process goes on with a conversation: `session`; `check_rounds` without telling all again"},
		{"Model", "uses the model that the job names: `agent.model`"},
		{"MaxTurns", "stops after a number of turns: `agent.max_turns`"},
		{"Tokens", "reports its tokens"},
		{"Cost", "reports its cost"},
		{"Terminals", "can be given terminals that people look at, too: `agent.terminals`"},
		{"Images", "is shown the images of a prompt: `send --image`; one of protocol `acp` if it says so when it runs"},
		{"API", "model API that it cannot do without"},
	}
	all := New(Config{}).All()
	names := make([]string, len(all))
	for i, about := range all {
		names[i] = "`" + about.Name + "`"
	}
	var b strings.Builder
	fmt.Fprintf(&b, tableHead, strings.Join(names, " | "), strings.Repeat("---|", len(all)))
	shape := reflect.TypeFor[Abilities]()
	if len(rows) != shape.NumField() {
		t.Errorf("%d rows for %d abilities", len(rows), shape.NumField())
	}
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row.means)
		for _, about := range all {
			fmt.Fprintf(&b, " %s |", cell(reflect.ValueOf(about.Abilities).FieldByName(row.field)))
		}
		b.WriteString("\n")
	}
	const path = "../../docs/reference/agents.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s is not what the program has: run make generate", path)
	}
}

// An agent without a program is a protocol, for those that a settings file adds.
func TestAbleWithoutProgram(t *testing.T) {
	agents := New(Config{Custom: map[string]Custom{"mine": {Protocol: "acp", Command: []string{"x"}}}})
	for name, refused := range map[string]bool{"acp": true, "mine": false, "command": false} {
		if err := agents.Able(jobs.Job{Agent: jobs.Agent{Name: name}}); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func cell(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.String && v.Len() > 0:
		return v.String()
	case v.Kind() == reflect.Bool && v.Bool():
		return "yes"
	}
	return ""
}

// What an adapter claims, its decoder must be able to do.
func TestAbilitiesAreTrue(t *testing.T) {
	agents := New(Config{})
	for _, about := range agents.All() {
		adapter, err := agents.Get(about.Name)
		if err != nil {
			t.Fatal(err)
		}
		l := launch(about.Name)
		l.Job.Agent.Command = []string{"true"}
		speaks := false
		for _, interactive := range []bool{false, about.Interactive} {
			talked := l
			talked.Job.Agent.Interactive = interactive
			if _, speaks = adapter.Decoder(talked).(Speaker); about.TakesPrompts(interactive) != speaks {
				t.Errorf("%s, interactive %v: says that it takes prompts: %v, and it does: %v", about.Name, interactive, !speaks, speaks)
			}
		}
		if claims := about.Interactive || about.Questions || about.Interrupt; claims != speaks {
			t.Errorf("%s: says that it can be spoken to: %v, and it can: %v", about.Name, claims, speaks)
		}
		if about.Images && !speaks {
			t.Errorf("%s: says that it takes images, and cannot be spoken to", about.Name)
		}
		said := func(change func(*Launch)) bool {
			asked := l
			change(&asked)
			before, after := plan(t, l), plan(t, asked)
			return !slices.Equal(before.Args, after.Args) || !slices.Equal(before.Env, after.Env) || dialogue(adapter, l) != dialogue(adapter, asked)
		}
		for field, got := range map[string][2]bool{
			"model":     {about.Model, said(func(l *Launch) { l.Job.Agent.Model = "m" })},
			"max_turns": {about.MaxTurns, said(func(l *Launch) { l.Job.Agent.MaxTurns = 7 })},
			"resume":    {about.Resume, said(func(l *Launch) { l.Resume = "r" })},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: says of %s %v, and its plan %v", about.Name, field, got[0], got[1])
			}
		}
	}
}

// dialogue is what an agent is told that answers as those of JSON-RPC do.
func dialogue(adapter Adapter, l Launch) string {
	var b strings.Builder
	d := adapter.Decoder(l)
	for n, line := range []string{
		`{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`, `{"id":2,"result":{"sessionId":"s"}}`,
	} {
		for _, reply := range d.Line(Line{Stream: Stdout, N: n + 1, Bytes: []byte(line)}).Reply {
			b.Write(reply)
		}
	}
	return b.String()
}

func TestAble(t *testing.T) {
	agents := New(Config{})
	for _, tt := range []struct {
		agent, field string
		change       func(*jobs.Job)
	}{
		{"command", "agent.max_turns", func(j *jobs.Job) { j.Agent.MaxTurns = 3 }},
		{"command", "session", func(j *jobs.Job) { j.Session = "s" }},
		{"codex", "agent.max_turns", func(j *jobs.Job) { j.Agent.MaxTurns = 3 }},
		{"command", "agent.interactive", func(j *jobs.Job) { j.Agent.Interactive = true }},
		{"codex", "", func(j *jobs.Job) { j.Agent.Interactive = true }},
		{"claude", "sandbox.preset", func(j *jobs.Job) { j.Sandbox.Preset = "offline" }},
		{"claude", "", func(j *jobs.Job) { j.Agent.Interactive, j.Agent.MaxTurns, j.Agent.Model, j.Session = true, 3, "m", "s" }},
		{"command", "", func(j *jobs.Job) { j.Agent.Model, j.Sandbox.Preset = "m", "offline" }},
		{"opencode", "", func(j *jobs.Job) { j.Agent.Interactive = true }},
		{"clippy", "", func(j *jobs.Job) { j.Agent.MaxTurns = 3 }},
	} {
		j := jobs.Job{Agent: jobs.Agent{Name: tt.agent}}
		if err := agents.Able(j); err != nil {
			t.Errorf("%s, of which nothing is asked: %v", tt.agent, err)
		}
		tt.change(&j)
		got := ""
		if invalid, ok := errors.AsType[*jobs.InvalidError](agents.Able(j)); ok {
			got = invalid.Fields[0].Field
		}
		if got != tt.field {
			t.Errorf("%s: refused for %q, want %q", tt.agent, got, tt.field)
		}
	}
}
