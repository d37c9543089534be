package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
)

// nobody is what a question gets in a job that nobody sits at. The agent
// would wait for an answer for ever.
const nobody = "Nobody is there to answer: this is an unattended run. Decide by yourself, say what you assumed, and go on."

// asks are the questions that are open, by the names that those who answer use.
type asks map[string]ask

// An ask is a question of the agent that waits for an answer.
type ask struct {
	input     json.RawMessage
	questions []control.Question // nil: it asks for a permission
	id        json.RawMessage    // of the agent's request, where it has one
	names     []string           // the agent's own, of each question, or of each option
	allow     string             // of the options: to allow, and to deny
	deny      string
}

// find finds the one that is meant; an empty id is the only one.
func (a asks) find(id string) (string, ask, error) {
	if len(a) == 0 {
		return "", ask{}, control.Refuse(control.Nothing, "no question is open")
	}
	if id == "" && len(a) > 1 {
		return "", ask{}, control.Refuse(control.Unfit, "%d questions are open, name one: %s", len(a), strings.Join(slices.Sorted(maps.Keys(a)), ", "))
	}
	for name, open := range a {
		if id == "" || id == name {
			return name, open, nil
		}
	}
	return "", ask{}, control.Refuse(control.Nothing, "question %s is not open", id)
}
