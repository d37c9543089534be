package builtin_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/goldentest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

var update = flag.Bool("update", false, "write the reference page anew")

const tableHead = `# What the agents can do

This page is made from the program: ` + "`make generate`" + ` writes it. ` + "`penstock agent ls -o json`" + ` tells the same,
with the agents that a settings file adds. A job that asks for what its agent cannot do is refused when it is
submitted, and the field is named; see [Agents](../how-to/agents.md).

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
		{"Instructions", "is given instructions of the job's own: `agent.instructions`"},
		{"MCPServers", "uses MCP servers that the job names: `agent.mcp_servers`"},
		{"API", "model API that it cannot do without"},
	}
	all := builtin.Agents(agent.Config{}).All()
	names := make([]string, len(all))
	for i, about := range all {
		names[i] = "`" + about.Name + "`"
	}
	var b strings.Builder
	fmt.Fprintf(&b, tableHead, strings.Join(names, " | "), strings.Repeat("---|", len(all)))
	shape := reflect.TypeFor[agent.Abilities]()
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
	goldentest.Compare(t, "../../../docs/reference/agents.md", b.String(), *update)
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
	agents := builtin.Agents(agent.Config{})
	for _, about := range agents.All() {
		adapter, err := agents.Get(about.Name)
		if err != nil {
			t.Fatal(err)
		}
		l := adaptertest.Launch(about.Name)
		l.Job.Agent.Command = []string{"true"}
		speaks := false
		for _, interactive := range []bool{false, about.Interactive} {
			run := l
			run.Job.Agent.Interactive = interactive
			if _, speaks = adapter.Decoder(run).(agent.Speaker); about.TakesPrompts(interactive) != speaks {
				t.Errorf("%s, interactive %v: says that it takes prompts: %v, and it does: %v", about.Name, interactive, !speaks, speaks)
			}
		}
		if claims := about.Interactive || about.Questions || about.Interrupt; claims != speaks {
			t.Errorf("%s: says that it can be spoken to: %v, and it can: %v", about.Name, claims, speaks)
		}
		if about.Images && !speaks {
			t.Errorf("%s: says that it takes images, and cannot be spoken to", about.Name)
		}
		changes := func(change func(*agent.Launch)) bool {
			asked := l
			change(&asked)
			before, after := adaptertest.Plan(t, adapter, l), adaptertest.Plan(t, adapter, asked)
			return !slices.Equal(before.Args, after.Args) || !slices.Equal(before.Env, after.Env) || dialogue(adapter, l) != dialogue(adapter, asked)
		}
		for field, got := range map[string][2]bool{
			"model":     {about.Model, changes(func(l *agent.Launch) { l.Job.Agent.Model = "m" })},
			"max_turns": {about.MaxTurns, changes(func(l *agent.Launch) { l.Job.Agent.MaxTurns = 7 })},
			"resume":    {about.Resume, changes(func(l *agent.Launch) { l.Resume = "r" })},
		} {
			if got[0] != got[1] {
				t.Errorf("%s: says of %s %v, and its plan %v", about.Name, field, got[0], got[1])
			}
		}
	}
}

// dialogue is what an agent is told that answers as those of JSON-RPC do.
func dialogue(adapter agent.Adapter, l agent.Launch) string {
	var b strings.Builder
	d := adapter.Decoder(l)
	for n, line := range []string{
		`{"id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}`, `{"id":2,"result":{"sessionId":"s"}}`,
	} {
		for _, reply := range d.Line(agent.Line{Stream: agent.Stdout, N: n + 1, Bytes: []byte(line)}).Reply {
			b.Write(reply)
		}
	}
	return b.String()
}
