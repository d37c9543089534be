package agent

import (
	"encoding/json"
	"maps"
	"slices"

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

// find finds the one that is meant.
func (a asks) find(answer control.Message) (string, ask, error) {
	id, err := answer.Meant(slices.Sorted(maps.Keys(a)))
	return id, a[id], err
}
