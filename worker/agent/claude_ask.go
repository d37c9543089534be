package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// readRequest handles a request of the agent. Every request gets an answer at once,
// unless a person is there to give it.
func (d *claudeDecoder) readRequest(out *claudeOut, r *Read) {
	if out.Request.Subtype != "can_use_tool" {
		r.add(event.AskOpened{Ask: out.RequestID, Type: "other", Tool: out.Request.Subtype})
		r.add(event.AskClosed{Ask: out.RequestID, How: "declined"})
		r.Reply = append(r.Reply, claudeRefusal(out.RequestID, "not supported by this host"))
		return
	}
	open := permission("May it use "+out.Request.ToolName+"?", claudeChoices(out.Request.Suggestions))
	opened := control.Ask{
		Ask: out.RequestID, Type: "permission", Tool: out.Request.ToolName, Call: out.Request.ToolUseID, Questions: open.list(), Input: out.Request.Input,
	}
	if out.Request.ToolName == "AskUserQuestion" {
		var in struct {
			Questions json.RawMessage `json:"questions"`
		}
		_ = json.Unmarshal(out.Request.Input, &in) // the whole input is there, even if the questions cannot be decoded
		opened.Type, opened.Questions, opened.Input = "question", in.Questions, nil
		open = ask{}
		_ = json.Unmarshal(opened.Questions, &open.questions) // without questions it is a request for permission
	}
	open.input = out.Request.Input
	r.add(event.AskOpened(opened))
	if d.interactive {
		remember(d.asks, out.RequestID, open)
		return
	}
	r.add(event.AskClosed{Ask: out.RequestID, How: "declined"})
	r.Reply = append(r.Reply, claudeAnswer(out.RequestID, claudeDecision{Behavior: "deny", Message: unattended}))
}

// A claudeSuggestion is a change of what the program may do without asking.
type claudeSuggestion struct {
	Type  string `json:"type"`
	Mode  string `json:"mode"`
	Rules []struct {
		Tool    string `json:"toolName"`
		Content string `json:"ruleContent"`
	} `json:"rules"`
	Directories []string `json:"directories"`
}

// text describes to people what a suggestion changes.
func (s claudeSuggestion) text() string {
	var words []string
	for _, r := range s.Rules {
		if r.Content != "" {
			r.Tool += "(" + r.Content + ")"
		}
		words = append(words, r.Tool)
	}
	for _, dir := range s.Directories {
		words = append(words, "directory "+dir)
	}
	if s.Mode != "" {
		words = append(words, "mode "+s.Mode)
	}
	return firstText(strings.Join(words, ", "), s.Type)
}

// claudeChoices are the answers to a request for permission: one of them accepts all
// suggestions together. They always apply to the session only. Otherwise the program
// would write them to the settings of the workspace, and so into the job's change.
func claudeChoices(suggestions json.RawMessage) []choice {
	var fields []map[string]json.RawMessage
	if json.Unmarshal(suggestions, &fields) != nil || len(fields) == 0 ||
		slices.ContainsFunc(fields, func(f map[string]json.RawMessage) bool { return f == nil }) {
		return nil
	}
	var texts []string
	for _, f := range fields {
		var s claudeSuggestion
		_ = json.Unmarshal(jsonLine(f), &s) // fields of an unexpected type stay zero
		texts = append(texts, s.text())
		f["destination"] = jsonLine("session")
	}
	return []choice{
		{Option: control.Option{Label: "Allow", Kind: "allow_once"}},
		{control.Option{Label: "Always allow", Description: short(strings.Join(texts, ", "), 500), Kind: "allow_always"}, jsonLine(fields)},
		{Option: control.Option{Label: "Reject", Kind: "reject_once"}},
	}
}

// claudeDecision answers can_use_tool.
type claudeDecision struct {
	Behavior string                     `json:"behavior"`
	Message  string                     `json:"message,omitempty"`
	Input    map[string]json.RawMessage `json:"updatedInput,omitempty"`
	// Permissions are what the program may do from now on without asking.
	Permissions json.RawMessage `json:"updatedPermissions,omitempty"`
}

// Answer implements [Speaker].
func (d *claudeDecoder) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.find(a)
	if err != nil {
		return nil, nil, err
	}
	var input map[string]json.RawMessage
	if json.Unmarshal(open.input, &input) != nil || input == nil {
		input = map[string]json.RawMessage{}
	}
	how, decision := "answered", claudeDecision{Behavior: "allow", Input: input}
	denied := claudeDecision{Behavior: "deny", Message: firstText(a.Text, unattended)}
	switch {
	case a.Deny:
		how, decision = "declined", denied
	case open.questions != nil && open.choices == nil:
		answers, err := a.Fit(open.questions)
		if err != nil {
			return nil, nil, err
		}
		input["answers"] = jsonLine(answers)
	default:
		chosen, err := open.choose(a)
		if err != nil {
			return nil, nil, err
		}
		if chosen == nil {
			break
		}
		decision.Permissions = chosen.send
		if how = chosen.how(); how == "declined" {
			decision = denied
		}
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = "claude", d.turn
	return []event.Event{e}, [][]byte{claudeAnswer(id, decision)}, nil
}
