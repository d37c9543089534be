package decode

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/penstock-run/penstock/jobs/control"
)

// Asks are the open questions, by the ids that answers use.
type Asks map[string]Ask

// An Ask is a question of the agent that waits for an answer.
type Ask struct {
	Input json.RawMessage
	// Questions are the questions of the ask. A request for permission has one
	// question, whose options are the answers that the agent offers. It has no options
	// where the agent offers only yes and no.
	Questions []control.Question
	ID        json.RawMessage // the id of the agent's request, where it has one
	Names     []string        // the agent's own id of each question
	Choices   []Choice        // for a request for permission
	Changes   bool            // for a request for permission: the agent takes another input for its tool
}

// A Choice is one of the answers that the agent offers to a request for permission.
type Choice struct {
	control.Option
	Send json.RawMessage // what is sent to the agent for it
}

// Permission makes a request for permission from the answers that the agent offers.
func Permission(question string, choices []Choice) Ask {
	open := Ask{Choices: choices}
	if len(choices) == 0 {
		return open
	}
	q := control.Question{Question: question}
	for _, c := range choices {
		q.Options = append(q.Options, c.Option)
	}
	open.Questions = []control.Question{q}
	return open
}

// List returns the questions as the event of the ask lists them.
func (a Ask) List() json.RawMessage {
	if len(a.Questions) == 0 {
		return nil
	}
	return JSON(a.Questions)
}

// Choose finds the choice that an answer to a request for permission names; nil if it
// names none and is a plain yes or no.
func (a Ask) Choose(answer control.Message) (*Choice, error) {
	if len(answer.ToolInput) > 0 && !a.Changes {
		return nil, control.Refuse(control.Cannot, "the agent takes no other input for its tool: deny the permission, and say why")
	}
	var asked control.Question
	if len(a.Questions) > 0 {
		asked = a.Questions[0]
	}
	i, err := answer.Chosen(asked)
	if err != nil || i < 0 {
		return nil, err
	}
	return &a.Choices[i], nil
}

// Offers finds a choice of the first of these kinds that is offered; nil if there is
// none.
func (a Ask) Offers(kinds ...string) *Choice {
	for _, kind := range kinds {
		if i := slices.IndexFunc(a.Choices, func(c Choice) bool { return c.Kind == kind }); i >= 0 {
			return &a.Choices[i]
		}
	}
	return nil
}

// How says how a choice closes the ask.
func (c Choice) How() string {
	if c.Refuses() {
		return "declined"
	}
	return "answered"
}

// Find finds the question that an answer means.
func (a Asks) Find(answer control.Message) (string, Ask, error) {
	id, err := answer.Meant(slices.Sorted(maps.Keys(a)))
	return id, a[id], err
}
