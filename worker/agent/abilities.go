package agent

import (
	"fmt"

	"github.com/penstock-run/penstock/jobs"
)

// Abilities are what a coding agent can do besides taking one prompt to its
// end. A job that asks for more is refused, because an agent that does not
// know a wish ignores it.
type Abilities struct {
	// Interactive: it takes more prompts while it lives.
	Interactive bool `json:"interactive"`
	// Questions: it asks, and goes on with the answer.
	Questions bool `json:"questions"`
	// Interrupt: its turn can be ended, and it lives on.
	Interrupt bool `json:"interrupt"`
	// Resume: a new process goes on with an earlier conversation.
	Resume bool `json:"resume"`
	// Model: it uses the model that the job names.
	Model bool `json:"model"`
	// MaxTurns: it stops by itself after a number of turns.
	MaxTurns bool `json:"max_turns"`
	// Tokens and Cost: it reports what it used. What goes through the gate is
	// counted there, whatever it reports.
	Tokens bool `json:"tokens"`
	Cost   bool `json:"cost"`
	// Terminals: it can be given terminals in its jail, which people look at.
	Terminals bool `json:"terminals"`
	// Images: prompts that it is given while it lives may have images. An agent of
	// the Agent Client Protocol says when it runs whether it takes them.
	Images bool `json:"images"`
	// API is the model API that it cannot do without: "anthropic", "openai", "google".
	API string `json:"api,omitempty"`
}

// Able reports all that a job asks for and its agent cannot do, as a
// [*jobs.InvalidError]. Of an agent that is not known it reports nothing.
func (a *Agents) Able(j jobs.Job) error {
	adapter, known := a.adapters[j.Agent.Name]
	if !known {
		return nil
	}
	can := adapter.About().Abilities
	var found []jobs.FieldError
	lacks := func(asked, able bool, field, what string) {
		if asked && !able {
			found = append(found, jobs.FieldError{Field: field, Reason: fmt.Sprintf("agent %s %s", j.Agent.Name, what)})
		}
	}
	_, bare := adapter.(acp)
	lacks(bare, false, "agent.name", "has no program of its own: give it a name under agents: in the settings")
	lacks(j.Agent.Model != "", can.Model, "agent.model", "lets nobody choose its model")
	lacks(j.Agent.MaxTurns > 0, can.MaxTurns, "agent.max_turns", "does not count its turns; use timeout or a budget")
	lacks(j.Agent.Interactive, can.Interactive, "agent.interactive", "takes one prompt and then ends")
	lacks(j.Agent.Terminals, can.Terminals, "agent.terminals", "can be given none")
	about := adapter.About()
	lacks(j.Ask.ParkAfter > 0, about.Conversation != "" || about.Protocol == "command", "ask.park_after", "cannot go on with its conversation in another process, so its questions keep their slot")
	lacks(j.Session != "", can.Resume, "session", "cannot go on with an earlier conversation")
	lacks(j.Agent.Terminals && can.Terminals && j.Sandbox.Preset == "offline", false, "agent.terminals", "has no way to its worker with preset offline, so it has no terminals")
	lacks(j.Sandbox.Preset == "offline", can.API == "", "sandbox.preset", "needs the "+can.API+" API, and preset offline has no way to it")
	if len(found) == 0 {
		return nil
	}
	return &jobs.InvalidError{Fields: found}
}
