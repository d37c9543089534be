package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// Abilities are what a coding agent can do besides taking one prompt and finishing it.
// A job that asks for more is refused, because an agent ignores an option that it does
// not know.
type Abilities struct {
	// Interactive: the agent takes more prompts while it runs.
	Interactive bool `json:"interactive"`
	// Questions: the agent asks questions and continues with the answers.
	Questions bool `json:"questions"`
	// Interrupt: a turn of the agent can be ended without ending the agent.
	Interrupt bool `json:"interrupt"`
	// Resume: a new process continues an earlier conversation.
	Resume bool `json:"resume"`
	// Model: the agent uses the model that the job names.
	Model bool `json:"model"`
	// Effort: the agent has its model think as much as the job says.
	Effort bool `json:"effort"`
	// MaxTurns: the agent stops by itself after a number of turns.
	MaxTurns bool `json:"max_turns"`
	// Tokens and Cost: the agent reports its usage. The gate counts what passes through
	// it, whatever the agent reports.
	Tokens bool `json:"tokens"`
	Cost   bool `json:"cost"`
	// Terminals: the agent can use terminals in its jail, which people can watch.
	Terminals bool `json:"terminals"`
	// Images: prompts sent while the agent runs may have images. An agent of the Agent
	// Client Protocol says at run time whether it takes them.
	Images bool `json:"images"`
	// Instructions: the agent can be given instructions of the job's own.
	Instructions bool `json:"instructions"`
	// Skills: the agent reads directories of instructions that the job names.
	Skills bool `json:"skills"`
	// MCPServers: the agent starts servers of tools that the job names.
	MCPServers bool `json:"mcp_servers"`
	// API is the model API that the agent needs: "anthropic", "openai", "google".
	API string `json:"api,omitempty"`
}

// acp is the name of the Agent Client Protocol, and of an agent that has nothing else.
const acp = "acp"

// Able reports everything that a job asks for and its agent cannot do, as a
// [*jobs.InvalidError]. It accepts an agent that it does not know.
func (a *Agents) Able(j jobs.Job) error {
	adapter, known := a.adapters[j.Agent.Name]
	if !known {
		return nil
	}
	about := adapter.About()
	can := about.Abilities
	var found []jobs.FieldError
	lacks := func(asked, able bool, field, what string) {
		if asked && !able {
			found = append(found, jobs.FieldError{Field: field, Reason: fmt.Sprintf("agent %s %s", j.Agent.Name, what)})
		}
	}
	lacks(j.Agent.Name == acp, false, "agent.name", "has no program of its own: give it a name under agents: in the settings")
	lacks(j.Agent.Model != "", can.Model, "agent.model", "has no choice of models")
	lacks(j.Agent.Effort != "", can.Effort, "agent.effort", "has no choice of effort")
	lacks(j.Agent.Effort != "" && can.Effort && len(about.Efforts) > 0, slices.Contains(about.Efforts, j.Agent.Effort), "agent.effort", "takes "+strings.Join(about.Efforts, ", "))
	lacks(j.Agent.MaxTurns > 0, can.MaxTurns, "agent.max_turns", "does not count its turns; use timeout or a budget")
	lacks(j.Agent.Interactive, can.Interactive, "agent.interactive", "takes one prompt and then ends")
	lacks(j.Agent.Terminals, can.Terminals, "agent.terminals", "can be given none")
	lacks(j.Agent.Instructions != "", can.Instructions, "agent.instructions", "has no way to be given any; say it in the prompt")
	lacks(len(j.Agent.Skills) > 0, can.Skills, "agent.skills", "reads none; say it in the prompt, or commit them where the agent reads those of a repository")
	lacks(len(j.Agent.MCPServers) > 0, can.MCPServers, "agent.mcp_servers", "uses no MCP servers")
	lacks(j.Agent.Version != "", about.Package.Name != "", "agent.version", "has no versions to choose from: its program comes from no known package")
	lacks(j.Ask.ParkAfter > 0, about.Conversation.Known() || about.Protocol == "command", "ask.park_after", "cannot go on with its conversation in another process, so its questions keep their slot")
	lacks(j.Session != "", can.Resume, "session", "cannot go on with an earlier conversation")
	lacks(j.Agent.Terminals && can.Terminals && j.Sandbox.Preset == "offline", false, "agent.terminals", "has no way to its worker with preset offline, so it has no terminals")
	lacks(j.Sandbox.Preset == "offline", can.API == "", "sandbox.preset", "needs the "+can.API+" API, and preset offline has no way to it")
	if len(found) == 0 {
		return nil
	}
	return &jobs.InvalidError{Fields: found}
}
