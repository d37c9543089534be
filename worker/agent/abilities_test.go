package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
)

func TestAble(t *testing.T) {
	agents := builtin.Agents(agent.Config{})
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
		{"command", "agent.mcp_servers", func(j *jobs.Job) { j.Agent.MCPServers = map[string]jobs.MCPServer{"a": {Command: "x"}} }},
		{"claude", "", func(j *jobs.Job) { j.Agent.MCPServers = map[string]jobs.MCPServer{"a": {Command: "x"}} }},
		{"command", "", func(j *jobs.Job) { j.Agent.Instructions = "x" }},
		{"gemini", "agent.effort", func(j *jobs.Job) { j.Agent.Effort = "low" }},
		{"claude", "agent.effort", func(j *jobs.Job) { j.Agent.Effort = "enormous" }},
		{"claude", "", func(j *jobs.Job) { j.Agent.Effort = "max" }},
		{"codex", "", func(j *jobs.Job) { j.Agent.Effort = "anything" }},
		{"command", "", func(j *jobs.Job) { j.Agent.Effort = "anything" }},
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

// An agent without a program is a protocol, for those that a settings file adds.
func TestAbleWithoutProgram(t *testing.T) {
	agents := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": {Protocol: "acp", Command: []string{"x"}}}})
	for name, refused := range map[string]bool{"acp": true, "mine": false, "command": false} {
		if err := agents.Able(jobs.Job{Agent: jobs.Agent{Name: name}}); (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTerminalsAreRefused(t *testing.T) {
	agents := builtin.Agents(agent.Config{Custom: map[string]agent.Custom{"mine": {Protocol: "acp", Command: []string{"x"}}}})
	for name, refused := range map[string]bool{"claude": false, "codex": false, "mine": false, "command": false, "gemini": true, "opencode": true} {
		job := jobs.Job{Agent: jobs.Agent{Name: name, Terminals: true}}
		if err := agents.Able(job); (err != nil) != refused || refused && !strings.Contains(err.Error(), "agent.terminals") {
			t.Errorf("%s: %v", name, err)
		}
		if err := agents.Able(jobs.Job{Agent: jobs.Agent{Name: name, Instructions: "x"}}); (err != nil) != (name == "mine") {
			t.Errorf("%s, with instructions: %v", name, err)
		}
		skilled := jobs.Job{Agent: jobs.Agent{Name: name, Skills: map[string]jobs.Skill{"x": {}}}}
		if err := agents.Able(skilled); (err != nil) != (name == "mine") || err != nil && !strings.Contains(err.Error(), "agent.skills") {
			t.Errorf("%s, with skills: %v", name, err)
		}
		job.Sandbox.Preset = "offline"
		if err := agents.Able(job); err == nil || !strings.Contains(err.Error(), "agent.terminals") {
			t.Errorf("%s, offline: %v", name, err)
		}
	}
}
