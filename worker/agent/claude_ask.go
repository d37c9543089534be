package agent

import (
	"encoding/json"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// readRequest takes what the agent asks of its host. Every request gets an
// answer at once, unless somebody is there to give it.
func (d *claudeDecoder) readRequest(out *claudeOut, r *Read) {
	if out.Request.Subtype != "can_use_tool" {
		r.add(event.AskOpened{Ask: out.RequestID, Type: "other", Tool: out.Request.Subtype})
		r.add(event.AskClosed{Ask: out.RequestID, How: "declined"})
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
	r.add(event.AskOpened(opened))
	if d.interactive {
		open := ask{input: out.Request.Input}
		_ = json.Unmarshal(opened.Questions, &open.questions) // without any it is a permission
		remember(d.asks, out.RequestID, open)
		return
	}
	r.add(event.AskClosed{Ask: out.RequestID, How: "declined"})
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
	id, open, err := d.asks.find(a)
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
		answers, err := a.Fit(open.questions)
		if err != nil {
			return nil, nil, err
		}
		input["answers"] = jsonLine(answers)
	case len(a.Options)+len(a.Answers) > 0 || a.Text != "":
		return nil, nil, control.Refuse(control.Unfit, "the agent asks for a permission: allow it, or deny it")
	}
	delete(d.asks, id)
	e := event.New(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = "claude", d.turn
	return []jobs.Event{e}, [][]byte{claudeAnswer(id, decision)}, nil
}
