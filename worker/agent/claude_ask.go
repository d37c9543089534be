package agent

import (
	"encoding/json"
	"maps"

	"github.com/google/uuid"

	"github.com/penstock-run/penstock/jobs"
)

// nobody is what a question gets in a job that nobody sits at. The agent
// would wait for an answer for ever.
const nobody = "Nobody is there to answer: this is an unattended run. Decide by yourself, say what you assumed, and go on."

// An ask is a question of the agent that waits for an answer.
type ask struct {
	input json.RawMessage
}

// readRequest takes what the agent asks of its host. Every request gets an
// answer at once, unless somebody is there to give it.
func (d *claudeDecoder) readRequest(out *claudeOut, r *Read) {
	if out.Request.Subtype != "can_use_tool" {
		r.add(jobs.AskOpened, askData{Ask: out.RequestID, Type: "other", Tool: out.Request.Subtype})
		r.add(jobs.AskClosed, askData{Ask: out.RequestID, How: "declined"})
		r.Reply = append(r.Reply, claudeRefusal(out.RequestID, "not supported by this host"))
		return
	}
	opened := askData{
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
		remember(d.asks, out.RequestID, ask{input: out.Request.Input})
		return
	}
	r.add(jobs.AskClosed, askData{Ask: out.RequestID, How: "declined"})
	r.Reply = append(r.Reply, claudeAnswer(out.RequestID, claudeDecision{Behavior: "deny", Message: nobody}))
}

// claudeDecision answers can_use_tool.
type claudeDecision struct {
	Behavior string                     `json:"behavior"`
	Message  string                     `json:"message,omitempty"`
	Input    map[string]json.RawMessage `json:"updatedInput,omitempty"`
}

// Answer implements [Speaker]. Without answers the question is declined.
func (d *claudeDecoder) Answer(id string, answers map[string]string) ([]jobs.Event, [][]byte) {
	open, ok := d.asks[id]
	if !ok {
		return nil, nil
	}
	delete(d.asks, id)
	closed := askData{Ask: id, How: "answered"}
	decision := claudeDecision{Behavior: "deny", Message: nobody}
	var input map[string]json.RawMessage
	switch err := json.Unmarshal(open.input, &input); {
	case err != nil || len(answers) == 0:
		closed.How = "declined"
	default:
		decision = claudeDecision{Behavior: "allow", Input: maps.Clone(input)}
		decision.Input["answers"] = claudeLine(answers)
	}
	e := jobs.NewEvent(jobs.AskClosed, closed)
	e.Agent, e.Turn = "claude", d.turn
	return []jobs.Event{e}, [][]byte{claudeAnswer(id, decision)}
}

// Say implements [Speaker].
func (d *claudeDecoder) Say(text string) [][]byte {
	d.resting, d.spoken = false, true
	return [][]byte{claudeUser(text, uuid.NewString())}
}

// Interrupt implements [Speaker].
func (d *claudeDecoder) Interrupt() [][]byte {
	return [][]byte{claudeLine(map[string]any{
		"type": "control_request", "request_id": "interrupt-" + uuid.NewString(),
		"request": map[string]string{"subtype": "interrupt"},
	})}
}
