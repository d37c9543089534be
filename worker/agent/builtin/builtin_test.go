package builtin_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/internal/adaptertest"
)

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
