package claude

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// readRequest handles a request of the agent. Every request gets an answer at once,
// unless a person is there to give it.
func (d *decoder) readRequest(out *outputLine, r *agent.Read) {
	if out.Request.Subtype != "can_use_tool" {
		r.Add(event.AskOpened{Ask: out.RequestID, Type: "other", Tool: out.Request.Subtype})
		r.Add(event.AskClosed{Ask: out.RequestID, How: "declined"})
		r.Reply = append(r.Reply, refusalLine(out.RequestID, "not supported by this host"))
		return
	}
	open := decode.Permission("May it use "+out.Request.ToolName+"?", choicesOf(out.Request.Suggestions))
	opened := control.Ask{
		Ask: out.RequestID, Type: "permission", Tool: out.Request.ToolName, Call: out.Request.ToolUseID, Questions: open.List(), Input: out.Request.Input,
	}
	if out.Request.ToolName == "AskUserQuestion" {
		var in struct {
			Questions json.RawMessage `json:"questions"`
		}
		_ = json.Unmarshal(out.Request.Input, &in) // the whole input is there, even if the questions cannot be decoded
		opened.Type, opened.Questions, opened.Input = "question", in.Questions, nil
		open = decode.Ask{}
		_ = json.Unmarshal(opened.Questions, &open.Questions) // without questions it is a request for permission
	}
	open.Input, open.Changes = out.Request.Input, opened.Type == "permission"
	r.Add(event.AskOpened(opened))
	if d.interactive {
		decode.Remember(d.asks, out.RequestID, open)
		return
	}
	r.Add(event.AskClosed{Ask: out.RequestID, How: "declined"})
	r.Reply = append(r.Reply, answerLine(out.RequestID, permissionResult{Behavior: "deny", Message: wording.Unattended}))
}

// A suggestion is a change of what the program may do without asking.
type suggestion struct {
	Type  string `json:"type"`
	Mode  string `json:"mode"`
	Rules []struct {
		Tool    string `json:"toolName"`
		Content string `json:"ruleContent"`
	} `json:"rules"`
	Directories []string `json:"directories"`
}

// text describes to people what a suggestion changes.
func (s suggestion) text() string {
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
	return wording.First(strings.Join(words, ", "), s.Type)
}

// choicesOf are the answers to a request for permission: one of them accepts all
// suggestions together. They always apply to the session only. Otherwise the program
// would write them to the settings of the workspace, and so into the job's change.
func choicesOf(suggestions json.RawMessage) []decode.Choice {
	var fields []map[string]json.RawMessage
	if json.Unmarshal(suggestions, &fields) != nil || len(fields) == 0 ||
		slices.ContainsFunc(fields, func(f map[string]json.RawMessage) bool { return f == nil }) {
		return nil
	}
	var texts []string
	for _, f := range fields {
		var s suggestion
		_ = json.Unmarshal(decode.JSON(f), &s) // fields of an unexpected type stay zero
		texts = append(texts, s.text())
		f["destination"] = decode.JSON("session")
	}
	return []decode.Choice{
		{Option: control.Option{Label: "Allow", Kind: "allow_once"}},
		{Option: control.Option{Label: "Always allow", Description: wording.Short(strings.Join(texts, ", "), 500), Kind: "allow_always"}, Send: decode.JSON(fields)},
		{Option: control.Option{Label: "Reject", Kind: "reject_once"}},
	}
}

// permissionResult answers can_use_tool.
type permissionResult struct {
	Behavior string          `json:"behavior"`
	Message  string          `json:"message,omitempty"`
	Input    json.RawMessage `json:"updatedInput,omitempty"`
	// Permissions are what the program may do from now on without asking.
	Permissions json.RawMessage `json:"updatedPermissions,omitempty"`
}

// Answer implements [agent.Speaker].
func (d *decoder) Answer(a control.Message) ([]event.Event, [][]byte, error) {
	id, open, err := d.asks.Find(a)
	if err != nil {
		return nil, nil, err
	}
	var input map[string]json.RawMessage
	if json.Unmarshal(open.Input, &input) != nil || input == nil {
		input = map[string]json.RawMessage{}
	}
	how, decision := "answered", permissionResult{Behavior: "allow", Input: decode.JSON(input)}
	denied := permissionResult{Behavior: "deny", Message: wording.First(a.Text, wording.Unattended)}
	switch {
	case a.Deny:
		how, decision = "declined", denied
	case open.Questions != nil && open.Choices == nil:
		answers, err := a.Fit(open.Questions)
		if err != nil {
			return nil, nil, err
		}
		input["answers"] = decode.JSON(answers)
		decision.Input = decode.JSON(input)
	default:
		chosen, err := open.Choose(a)
		if err != nil {
			return nil, nil, err
		}
		if len(a.ToolInput) > 0 {
			decision.Input = a.ToolInput
		}
		if chosen == nil {
			break
		}
		decision.Permissions = chosen.Send
		if how = chosen.How(); how == "declined" {
			decision = denied
		}
	}
	delete(d.asks, id)
	e := event.Make(event.AskClosed{Ask: id, How: how})
	e.Agent, e.Turn = "claude", d.turn
	return []event.Event{e}, [][]byte{answerLine(id, decision)}, nil
}
