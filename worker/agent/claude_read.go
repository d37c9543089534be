package agent

import (
	"encoding/json"
	"maps"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// maxOpen bounds how many calls and questions a decoder remembers that the agent opened
// and never closed.
const maxOpen = 4096

// maxKey bounds the length of their ids.
const maxKey = 512

// claudeDecoder reads one run of Claude Code.
//
//	(nothing) ──init──▶ turn open ──result──▶ turn over ──idle──▶ idle
//	                        ▲                     │
//	                        └──init (follow-up, background work that ended)
type claudeDecoder struct {
	interactive bool

	turn    int
	open    bool             // a turn has begun and not ended
	last    *event.TurnEnded // how the last turn ended
	failure claudeFailure    // the last error that the agent reported in a turn
	retried jobs.Reason      // why the model API is being tried again
	session string           // the session that was announced last
	tools   map[string]tool  // calls that have not ended
	asks    asks             // open questions
	live    int              // what runs in the background
	states  bool             // the program reports its state
	resting bool             // the last state that it reported was idle
	said    map[string]bool  // prompts that it was sent and has not taken up; true: it has read it
	total   Total
	exact   bool // result messages report usage since the previous one
	words   lastError
}

// A tool is a call that has not ended.
type tool struct{ name, kind string }

func (claude) Decoder(l Launch) Decoder {
	d := &claudeDecoder{interactive: l.Job.Agent.Interactive, tools: map[string]tool{}, asks: asks{}, said: map[string]bool{}}
	d.total.Session = l.Resume
	if l.Resume == "" {
		d.total.Session = l.claudeSession()
	}
	return d
}

// Line implements [Decoder].
func (d *claudeDecoder) Line(line Line) Read {
	raw, object := parse(line)
	var r Read
	if line.Stream == Stderr || object == nil {
		r.Events = []event.Event{d.words.event(line, raw)}
	} else {
		var out claudeOut
		// Fields of an unexpected type stay zero; the rest is decoded.
		_ = json.Unmarshal(object, &out)
		d.read(&out, &r)
		if len(r.Events) == 0 {
			r.add(event.AgentRaw{Type: out.Type, Subtype: out.Subtype})
		}
		r.Events[0].Raw = raw
	}
	for i := range r.Events {
		r.Events[i].Agent, r.Events[i].Turn = "claude", d.turn
	}
	r.State, r.Hopeless, r.Retried = d.state(), d.hopeless(), d.retried
	return r
}

func (r *Read) add(p event.Payload) { r.Events = append(r.Events, event.Make(p)) }

// state returns the state of the run. Where the program does not report it, the end of
// the turn counts as idle.
func (d *claudeDecoder) state() State {
	switch {
	case d.last == nil || d.open || len(d.said) > 0 || d.states && !d.resting:
		return Working
	case d.live > 0:
		return Background
	}
	return Idle
}

func (d *claudeDecoder) hopeless() jobs.Reason {
	if jobs.Reasons[d.retried].Hopeless() {
		return d.retried
	}
	return ""
}

func (d *claudeDecoder) read(out *claudeOut, r *Read) {
	switch out.Type {
	case "system":
		d.readSystem(out, r)
	case "assistant":
		d.readAssistant(out, r)
	case "user":
		d.readUser(out, r)
	case "result":
		d.readResult(out, r)
	case "stream_event":
		d.readStream(out, r)
	case "control_request":
		d.readRequest(out, r)
	case "control_cancel_request":
		if _, ok := d.asks[out.RequestID]; ok {
			delete(d.asks, out.RequestID)
			r.add(event.AskClosed{Ask: out.RequestID, How: "withdrawn"})
		}
	case "control_response":
		r.add(controlReply(out))
	case "command_lifecycle":
		if _, ours := d.said[out.CommandID]; ours {
			d.said[out.CommandID] = true
		}
		r.add(event.InputState{Input: out.CommandID, State: out.State})
	case "rate_limit_event":
		r.add(event.Limit{RawMessage: out.RateLimit})
	case "tool_progress":
		r.add(event.ToolOutput{Call: out.ToolUseID, Name: out.ToolName, Parent: out.Parent})
	}
}

func (d *claudeDecoder) readSystem(out *claudeOut, r *Read) {
	switch out.Subtype {
	case "init":
		d.readInit(out, r)
	case "session_state_changed":
		d.states, d.resting = true, out.State == "idle"
		if d.resting {
			// The program has dropped every prompt that it has read and not taken up by
			// now: an interrupt does that.
			maps.DeleteFunc(d.said, func(_ string, read bool) bool { return read })
		}
		state := out.State
		if state == "requires_action" {
			state = "waiting"
		}
		r.add(event.StateChanged{State: state})
	case "status":
		if out.Status != "" {
			r.add(event.StateChanged{State: out.Status})
		}
	case "api_retry":
		d.retried = claudeFailure{class: out.Error, http: out.ErrorStatus}.reason()
		r.add(event.Retry{
			Attempt: out.Attempt, Max: out.MaxRetries, DelayMS: out.RetryDelay, HTTP: out.ErrorStatus,
			Class: out.Error, Hopeless: d.hopeless() != "",
		})
	case "task_started", "task_updated", "task_progress", "task_notification":
		r.add(taskOf(out))
	case "background_tasks_changed":
		live := make([]string, len(out.Tasks))
		for i, t := range out.Tasks {
			live[i] = t.ID
		}
		d.live = len(live)
		r.add(event.TaskUpdated{Live: &live})
	case "thinking_tokens":
		r.add(event.ThoughtDelta{Role: "assistant", Parent: out.Parent})
	case "hook_started", "hook_response", "hook_progress":
		r.add(event.Hook{Type: out.HookName, Event: out.HookEvent, Outcome: out.Outcome, ExitCode: out.ExitCode})
	case "permission_denied", "informational", "notification", "compact_boundary":
		var text string
		_ = json.Unmarshal(out.Message, &text) // some programs send an object here: then there is no text
		r.add(event.Notice{Type: out.Subtype, Text: text, Call: out.ToolUseID, Tool: out.ToolName})
	}
}

func (d *claudeDecoder) readInit(out *claudeOut, r *Read) {
	d.total.Model = out.Model
	if out.SessionID != d.session {
		d.session, d.total.Session = out.SessionID, out.SessionID
		canAsk := false
		for _, name := range out.Tools {
			canAsk = canAsk || name == "AskUserQuestion"
		}
		r.add(event.SessionStarted{
			Session: out.SessionID, Model: out.Model, Cwd: out.Cwd, Mode: out.PermissionMode,
			Version: out.Version, Tools: out.Tools, MCP: out.MCP, CanAsk: canAsk,
		})
	}
	if d.open {
		return // announced again within a turn
	}
	d.turn++
	d.open, d.failure, d.resting = true, claudeFailure{}, false
	r.add(event.TurnStarted{})
}

func taskOf(out *claudeOut) event.TaskUpdated {
	t := event.TaskUpdated{Task: out.TaskID, Call: out.ToolUseID, Text: out.Description, Status: "running", Tokens: max(0, out.Usage.Total)}
	switch out.Subtype {
	case "task_updated":
		t.Status = out.Patch.Status
	case "task_notification":
		t.Status, t.Text = out.Status, out.Summary
	}
	return t
}

func controlReply(out *claudeOut) event.ControlReply {
	var reply struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Error     string `json:"error"`
	}
	_ = json.Unmarshal(out.Response, &reply) // missing fields stay empty
	ok := reply.Subtype == "success"
	return event.ControlReply{Type: reply.RequestID, Text: reply.Error, OK: &ok}
}

func (d *claudeDecoder) readStream(out *claudeOut, r *Read) {
	delta := out.Event.Delta
	switch {
	case delta.Type == "text_delta":
		r.add(event.MessageDelta{Role: "assistant", Text: delta.Text, Parent: out.Parent})
	case delta.Type == "thinking_delta":
		r.add(event.ThoughtDelta{Role: "assistant", Text: delta.Thinking, Parent: out.Parent})
	case delta.Type == "input_json_delta":
		r.add(event.ToolDelta{Text: delta.Partial, Parent: out.Parent})
	case out.Event.Type == "message_delta" && out.Event.Usage != nil:
		r.add(event.Usage{Scope: "call", Tokens: event.Tokens{Usage: new(out.Event.Usage.jobs())}})
	}
}
