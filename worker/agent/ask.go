package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
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

// fit makes the answers of an ask: for the text of each question, one.
func fit(questions []control.Question, a control.Message) (map[string]string, error) {
	answers := map[string]string{}
	if len(a.Answers) == 0 {
		if len(questions) > 1 {
			return nil, control.Refuse(control.Unfit, "it asks %d questions at once: answer each, by its number or its header", len(questions))
		}
		said, err := choose(questions[0], a.Options, a.Text)
		answers[questions[0].Question] = said
		return answers, err
	}
	for _, name := range slices.Sorted(maps.Keys(a.Answers)) {
		i := slices.IndexFunc(questions, func(q control.Question) bool { return name == q.Question || strings.EqualFold(name, q.Header) })
		if n, err := strconv.Atoi(name); i < 0 && err == nil {
			i = n - 1
		}
		if i < 0 || i >= len(questions) {
			return nil, control.Refuse(control.Unfit, "it asks no question %q", name)
		}
		answers[questions[i].Question] = a.Answers[name]
	}
	for i, q := range questions {
		if strings.TrimSpace(answers[q.Question]) == "" {
			return nil, control.Refuse(control.Unfit, "question %d has no answer: %s", i+1, q.Question)
		}
	}
	return answers, nil
}

// choose makes the answer to one question: labels of its options, or words of
// one's own.
func choose(q control.Question, options []string, text string) (string, error) {
	if len(options) == 0 {
		if strings.TrimSpace(text) == "" {
			return "", control.Refuse(control.Unfit, "there is no answer: choose an option, or write a text")
		}
		return text, nil
	}
	if len(options) > 1 && !q.Multi {
		return "", control.Refuse(control.Unfit, "only one option can be chosen")
	}
	var chosen, labels []string
	for _, o := range q.Options {
		labels = append(labels, o.Label)
	}
	for _, o := range options {
		i := slices.IndexFunc(labels, func(label string) bool { return strings.EqualFold(label, strings.TrimSpace(o)) })
		if n, err := strconv.Atoi(o); i < 0 && err == nil {
			i = n - 1
		}
		if i < 0 || i >= len(labels) {
			return "", control.Refuse(control.Unfit, "%q is not one of its options (%s); words of your own go as a text", o, strings.Join(labels, ", "))
		}
		chosen = append(chosen, labels[i])
	}
	return strings.Join(chosen, ", "), nil
}
