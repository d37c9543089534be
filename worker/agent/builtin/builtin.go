// Package builtin lists the coding agents that Penstock knows without settings. It is
// the one place that names them all: a new agent is a package beside the others, and a
// line here.
package builtin

import (
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/acp"
	"github.com/penstock-run/penstock/worker/agent/internal/claude"
	"github.com/penstock-run/penstock/worker/agent/internal/codex"
	"github.com/penstock-run/penstock/worker/agent/internal/command"
	"github.com/penstock-run/penstock/worker/agent/internal/gemini"
	"github.com/penstock-run/penstock/worker/agent/internal/opencode"
)

// Agents returns the built-in agents, and those that the settings add. It does not look
// for their programs yet.
func Agents(cfg agent.Config) *agent.Agents {
	return agent.New(cfg,
		command.Adapter{}, claude.Adapter{}, codex.Adapter{}, gemini.Adapter{}, opencode.Adapter{}, acp.Adapter{})
}
