package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// nobody is what a question gets in a job that nobody sits at. The agent
// would wait for an answer for ever.
const nobody = "Nobody is there to answer: this is an unattended run. Decide by yourself, say what you assumed, and go on."

// An ask is a question of the agent that waits for an answer.
type ask struct {
	input     json.RawMessage
	questions []control.Question // nil: it asks for a permission
}

// readRequest takes what the agent asks of its host. Every request gets an
// answer at once, unless somebody is there to give it.
func (d *claudeDecoder) readRequest(out *claudeOut, r *Read) {
	if out.Request.Subtype != "can_use_tool" {
		r.add(jobs.AskOpened, control.Ask{Ask: out.RequestID, Type: "other", Tool: out.Request.Subtype})
		r.add(jobs.AskClosed, control.Ask{Ask: out.RequestID, How: "declined"})
		r.Reply = append(r.Reply, claudeRefusal(out.RequestID, "not supported by this host"))
		return
	}
	opened := control.Ask{
		Ask: out.RequestID, Type: "permission", Tool: out.Request.ToolName, Call: out.Request.ToolUseID, Input: out.Request.Input,
	}
	if out.Request.ToolName == "AskUserQuestion" {
		var in struct {
			Questions json.RawMessage `json:"questions"`
		}
		_ = json.Unmarshal(out.Request.Input, &in) // the input is there as a whole, if not the questions
		opened.Type, opened.Questions, opened.Input = "question", in.Questions, nil
	}
	r.add(jobs.AskOpened, opened)
	if d.interactive {
		open := ask{input: out.Request.Input}
		_ = json.Unmarshal(opened.Questions, &open.questions) // without any it is a permission
		remember(d.asks, out.RequestID, open)
		return
	}
	r.add(jobs.AskClosed, control.Ask{Ask: out.RequestID, How: "declined"})
	r.Reply = append(r.Reply, claudeAnswer(out.RequestID, claudeDecision{Behavior: "deny", Message: nobody}))
}

// claudeDecision answers can_use_tool.
type claudeDecision struct {
	Behavior string                     `json:"behavior"`
	Message  string                     `json:"message,omitempty"`
	Input    map[string]json.RawMessage `json:"updatedInput,omitempty"`
}

// Answer implements [Speaker].
func (d *claudeDecoder) Answer(a control.Message) ([]jobs.Event, [][]byte, error) {
	id, open, err := d.openAsk(a.Ask)
	if err != nil {
		return nil, nil, err
	}
	var input map[string]json.RawMessage
	if json.Unmarshal(open.input, &input) != nil || input == nil {
		input = map[string]json.RawMessage{}
	}
	how, decision := "answered", claudeDecision{Behavior: "allow", Input: input}
	switch {
	case a.Deny:
		how, decision = "declined", claudeDecision{Behavior: "deny", Message: firstText(a.Text, nobody)}
	case open.questions != nil:
		answers, err := fit(open.questions, a)
		if err != nil {
			return nil, nil, err
		}
		input["answers"] = claudeLine(answers)
	case len(a.Options)+len(a.Answers) > 0 || a.Text != "":
		return nil, nil, control.Refuse(control.Unfit, "the agent asks for a permission: allow it, or deny it")
	}
	delete(d.asks, id)
	e := jobs.NewEvent(jobs.AskClosed, control.Ask{Ask: id, How: how})
	e.Agent, e.Turn = "claude", d.turn
	return []jobs.Event{e}, [][]byte{claudeAnswer(id, decision)}, nil
}

// openAsk finds the ask that is meant.
func (d *claudeDecoder) openAsk(id string) (string, ask, error) {
	if len(d.asks) == 0 {
		return "", ask{}, control.Refuse(control.Nothing, "no question is open")
	}
	if id == "" && len(d.asks) > 1 {
		return "", ask{}, control.Refuse(control.Unfit, "%d questions are open, name one: %s", len(d.asks), strings.Join(slices.Sorted(maps.Keys(d.asks)), ", "))
	}
	for name, open := range d.asks {
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
