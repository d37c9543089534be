package acp

import (
	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
)

// settings are those of a session: which the agent offers, and which it is yet to be set to.
type settings struct {
	rpc     *jsonrpc.Client
	session sdk.SessionId
	options map[string]string // the option that sets the model, the mode or the effort
	first   []setting         // what the agent is set to before its first prompt; it is being set to the first one
	later   map[string]string // efforts to be set when the model is, by the id of the message
}

// A setting is the "model", the "mode" or the "effort", and the agent's name of its value.
type setting struct{ what, value string }

// A configOption is a setting that the agent offers.
type configOption struct {
	ID       string `json:"id"`
	Category string `json:"category"`
	Current  any    `json:"currentValue"`
}

// categories are what the protocol calls our settings. What is offered of one may depend on another.
var categories = map[string]string{"model": "model", "mode": "mode", "thought_level": "effort"}

// offers notes which settings the agent offers, and returns their values. No list says nothing.
func (s *settings) offers(options []configOption) (current map[string]string) {
	if len(options) == 0 {
		return nil
	}
	clear(s.options)
	current = map[string]string{}
	for _, o := range options {
		if what, known := categories[o.Category]; known {
			s.options[what] = o.ID
			current[what], _ = o.Current.(string) // a switch, where it is not one
		}
	}
	return current
}

// readLater sets the effort of a message that has set the model.
func (s *settings) readLater(m jsonrpc.Message, id string, r *agent.Read) {
	effort := s.later[id]
	delete(s.later, id)
	switch {
	case effort == "" || m.Error != nil:
	case s.options["effort"] == "":
		r.Add(event.Notice{Type: "effort", Text: "the agent offers no choice of effort for this model"})
	default:
		r.Reply = append(r.Reply, s.set("effort", effort, id))
	}
}

// set uses an option that the agent offers, or else the protocol's request.
func (s *settings) set(what, value, input string) []byte {
	if option := s.options[what]; option != "" {
		return s.rpc.Request(sdk.AgentMethodSessionSetConfigOption, map[string]any{"sessionId": s.session, "configId": option, "value": value}, input)
	}
	if what == "model" {
		return s.rpc.Request(sdk.AgentMethodSessionSetModel, sdk.UnstableSetSessionModelRequest{SessionId: s.session, ModelId: sdk.UnstableModelId(value)}, input)
	}
	return s.rpc.Request(sdk.AgentMethodSessionSetMode, sdk.SetSessionModeRequest{SessionId: s.session, ModeId: sdk.SessionModeId(value)}, input)
}

// refusal is why the agent cannot begin without a setting; m has its error, if it gave one.
func refusal(s setting, m jsonrpc.Message) (jobs.Reason, string) {
	switch {
	case s.what == "model":
		return jobs.ModelNotFound, "it does not take model " + s.value
	case m.Error != nil:
		return jobs.InvalidJob, "it does not take agent.effort " + s.value
	}
	return jobs.InvalidJob, "it offers no choice of agent.effort for its model"
}
