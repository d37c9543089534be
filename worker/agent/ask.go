package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
)

// unattended is the answer to a question in a job that is not interactive. Without it the
// agent would wait for ever.
const unattended = "This is an unattended run: no person can answer. Decide yourself, state your assumptions, and continue."

// asks are the open questions, by the ids that answers use.
type asks map[string]ask

// An ask is a question of the agent that waits for an answer.
type ask struct {
	input json.RawMessage
	// questions are the questions of the ask. A request for permission has one
	// question, whose options are the answers that the agent offers. It has no options
	// where the agent offers only yes and no.
	questions []control.Question
	id        json.RawMessage // the id of the agent's request, where it has one
	names     []string        // the agent's own id of each question
	choices   []choice        // for a request for permission
}

// A choice is one of the answers that the agent offers to a request for permission.
type choice struct {
	control.Option
	send json.RawMessage // what is sent to the agent for it
}

// permission makes a request for permission from the answers that the agent offers.
func permission(question string, choices []choice) ask {
	open := ask{choices: choices}
	if len(choices) == 0 {
		return open
	}
	q := control.Question{Question: question}
	for _, c := range choices {
		q.Options = append(q.Options, c.Option)
	}
	open.questions = []control.Question{q}
	return open
}

// list returns the questions as the event of the ask lists them.
func (a ask) list() json.RawMessage {
	if len(a.questions) == 0 {
		return nil
	}
	return jsonLine(a.questions)
}

// choose finds the choice that an answer to a request for permission names; nil if it
// names none and is a plain yes or no.
func (a ask) choose(answer control.Message) (*choice, error) {
	switch {
	case answer.Deny || len(answer.Options)+len(answer.Answers) == 0 && answer.Text == "":
		return nil, nil
	case len(a.choices) == 0:
		return nil, control.Refuse(control.Unfit, "the agent asks for a permission: allow it, or deny it")
	}
	chosen, err := answer.Fit(a.questions)
	if err != nil {
		return nil, err
	}
	label := chosen[a.questions[0].Question]
	i := slices.IndexFunc(a.choices, func(c choice) bool { return c.Label == label })
	if i < 0 {
		return nil, control.Refuse(control.Unfit, "the agent asks for a permission: choose an option, allow it, or deny it")
	}
	return &a.choices[i], nil
}

// offers finds a choice of the first of these kinds that is offered; nil if there is
// none.
func (a ask) offers(kinds ...string) *choice {
	for _, kind := range kinds {
		if i := slices.IndexFunc(a.choices, func(c choice) bool { return c.Kind == kind }); i >= 0 {
			return &a.choices[i]
		}
	}
	return nil
}

// how says how a choice closes the ask.
func (c choice) how() string {
	if strings.HasPrefix(c.Kind, "reject") {
		return "declined"
	}
	return "answered"
}

// find finds the question that an answer means.
func (a asks) find(answer control.Message) (string, ask, error) {
	id, err := answer.Meant(slices.Sorted(maps.Keys(a)))
	return id, a[id], err
}
