package claude

import (
	"encoding/json"
	"maps"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
)

// decoder reads one run of Claude Code.
//
//	(nothing) ──init──▶ turn open ──result──▶ turn over ──idle──▶ idle
//	                        ▲                     │
//	                        └──init (follow-up, background work that ended)
type decoder struct {
	interactive bool

	turn    int
	open    bool             // a turn has begun and not ended
	last    *event.TurnEnded // how the last turn ended
	failure apiFailure       // the last error that the agent reported in a turn
	retried jobs.Reason      // why the model API is being tried again
	session string           // the session that was announced last
	tools   map[string]tool  // calls that have not ended
	asks    decode.Asks      // open questions
	live    int              // what runs in the background
	states  bool             // the program reports its state
	resting bool             // the last state that it reported was idle
	pending map[string]bool  // prompts that it was sent and has not taken up; true: it has read it
	total   agent.Total
	call    apiMessage // the last one of the agent itself that has tokens: what the conversation is now
	exact   bool       // result messages report usage since the previous one
	stderr  decode.LastError
}

// A tool is a call that has not ended.
type tool struct{ name, kind string }

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	d := &decoder{interactive: l.Job.Agent.Interactive, tools: map[string]tool{}, asks: decode.Asks{}, pending: map[string]bool{}}
	d.total.Session = l.Resume
	if l.Resume == "" {
		d.total.Session = l.NewSession()
	}
	return d
}

// Line implements [agent.Decoder].
func (d *decoder) Line(line agent.Line) agent.Read {
	raw, object := decode.Parse(line)
	var r agent.Read
	if line.Stream == agent.Stderr || object == nil {
		r.Events = []event.Event{d.stderr.Event(line, raw)}
	} else {
		var out outputLine
		// Fields of an unexpected type stay zero; the rest is decoded.
		_ = json.Unmarshal(object, &out)
		d.read(&out, &r)
		if len(r.Events) == 0 {
			r.Add(event.AgentRaw{Type: out.Type, Subtype: out.Subtype})
		}
		r.Events[0].Raw = raw
	}
	for i := range r.Events {
		r.Events[i].Agent, r.Events[i].Turn = "claude", d.turn
	}
	r.State, r.Hopeless, r.Retried = d.state(), d.hopeless(), d.retried
	return r
}

// state returns the state of the run. Where the program does not report it, the end of
// the turn counts as idle.
func (d *decoder) state() agent.State {
	switch {
	case d.last == nil || d.open || len(d.pending) > 0 || d.states && !d.resting:
		return agent.Working
	case d.live > 0:
		return agent.Background
	}
	return agent.Idle
}

func (d *decoder) hopeless() jobs.Reason {
	if jobs.Reasons[d.retried].Hopeless() {
		return d.retried
	}
	return ""
}

func (d *decoder) read(out *outputLine, r *agent.Read) {
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
			r.Add(event.AskClosed{Ask: out.RequestID, How: "withdrawn"})
		}
	case "control_response":
		r.Add(controlReply(out))
	case "command_lifecycle":
		if _, ours := d.pending[out.CommandID]; ours {
			d.pending[out.CommandID] = true
		}
		r.Add(event.InputState{Input: out.CommandID, State: out.State})
	case "rate_limit_event":
		r.Add(event.Limit{RawMessage: out.RateLimit})
	case "tool_progress":
		r.Add(event.ToolOutput{Call: out.ToolUseID, Name: out.ToolName, Parent: out.Parent})
	}
}

func (d *decoder) readSystem(out *outputLine, r *agent.Read) {
	switch out.Subtype {
	case "init":
		d.readInit(out, r)
	case "session_state_changed":
		d.states, d.resting = true, out.State == "idle"
		if d.resting {
			// The program has dropped every prompt that it has read and not taken up by
			// now: an interrupt does that.
			maps.DeleteFunc(d.pending, func(_ string, read bool) bool { return read })
		}
		state := out.State
		if state == "requires_action" {
			state = "waiting"
		}
		r.Add(event.StateChanged{State: state})
	case "status":
		if out.Status != "" {
			r.Add(event.StateChanged{State: out.Status})
		}
	case "api_retry":
		d.retried = apiFailure{class: out.Error, http: out.ErrorStatus}.reason()
		r.Add(event.Retry{
			Attempt: out.Attempt, Max: out.MaxRetries, DelayMS: out.RetryDelay, HTTP: out.ErrorStatus,
			Class: out.Error, Hopeless: d.hopeless() != "",
		})
	case "task_started", "task_updated", "task_progress", "task_notification":
		r.Add(taskOf(out))
	case "background_tasks_changed":
		live := make([]string, len(out.Tasks))
		for i, t := range out.Tasks {
			live[i] = t.ID
		}
		d.live = len(live)
		r.Add(event.TaskUpdated{Live: &live})
	case "thinking_tokens":
		r.Add(event.ThoughtDelta{Role: "assistant", Parent: out.Parent})
	case "hook_started", "hook_response", "hook_progress":
		r.Add(event.Hook{Type: out.HookName, Event: out.HookEvent, Outcome: out.Outcome, ExitCode: out.ExitCode})
	case "permission_denied", "informational", "notification", "compact_boundary":
		var text string
		_ = json.Unmarshal(out.Message, &text) // some programs send an object here: then there is no text
		r.Add(event.Notice{Type: out.Subtype, Text: text, Call: out.ToolUseID, Tool: out.ToolName})
	}
}

func (d *decoder) readInit(out *outputLine, r *agent.Read) {
	d.total.Model = out.Model
	if out.SessionID != d.session {
		d.session, d.total.Session = out.SessionID, out.SessionID
		canAsk := false
		for _, name := range out.Tools {
			canAsk = canAsk || name == "AskUserQuestion"
		}
		r.Add(event.SessionStarted{
			Session: out.SessionID, Model: out.Model, Cwd: out.Cwd, Mode: out.PermissionMode,
			Version: out.Version, Tools: out.Tools, MCP: out.MCP, CanAsk: canAsk,
		})
	}
	if d.open {
		return // announced again within a turn
	}
	d.turn++
	d.open, d.failure, d.resting = true, apiFailure{}, false
	r.Add(event.TurnStarted{})
}

func taskOf(out *outputLine) event.TaskUpdated {
	t := event.TaskUpdated{Task: out.TaskID, Call: out.ToolUseID, Text: out.Description, Status: "running", Tokens: max(0, out.Usage.Total)}
	switch out.Subtype {
	case "task_updated":
		t.Status = out.Patch.Status
	case "task_notification":
		t.Status, t.Text = out.Status, out.Summary
	}
	return t
}

func controlReply(out *outputLine) event.ControlReply {
	var reply struct {
		Subtype   string `json:"subtype"`
		RequestID string `json:"request_id"`
		Error     string `json:"error"`
	}
	_ = json.Unmarshal(out.Response, &reply) // missing fields stay empty
	ok := reply.Subtype == "success"
	return event.ControlReply{Type: reply.RequestID, Text: reply.Error, OK: &ok}
}

func (d *decoder) readStream(out *outputLine, r *agent.Read) {
	delta := out.Event.Delta
	switch {
	case delta.Type == "text_delta":
		r.Add(event.MessageDelta{Role: "assistant", Text: delta.Text, Parent: out.Parent})
	case delta.Type == "thinking_delta":
		r.Add(event.ThoughtDelta{Role: "assistant", Text: delta.Thinking, Parent: out.Parent})
	case delta.Type == "input_json_delta":
		r.Add(event.ToolDelta{Text: delta.Partial, Parent: out.Parent})
	case out.Event.Type == "message_delta" && out.Event.Usage != nil:
		r.Add(event.Usage{Scope: "call", Tokens: event.Tokens{Usage: new(out.Event.Usage.jobs())}})
	}
}
