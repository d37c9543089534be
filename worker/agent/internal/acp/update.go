package acp

import (
	"encoding/json"
	"slices"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// maxMessage bounds a message that arrives in pieces.
const maxMessage = 1 << 20

// agentParams are the parameters of messages that the agent sends on its own. Only the
// fields that are used have names.
type agentParams struct {
	Update  sessionUpdate `json:"update"`
	Tool    sessionUpdate `json:"toolCall"`
	Options []struct {
		ID   string `json:"optionId"`
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"options"`
}

type sessionUpdate struct {
	Type      string          `json:"sessionUpdate"`
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"` // of a message one block, of a tool call a list
	Call      string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"`
	Input     json.RawMessage `json:"rawInput"`
	Entries   json.RawMessage `json:"entries"`
	Mode      string          `json:"currentModeId"`
	Options   []configOption  `json:"configOptions"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Used int64  `json:"used"`
	Size *int64 `json:"size"`
	Cost struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	} `json:"cost"`
	Meta struct {
		Usage tokens `json:"usage"` // of Qwen Code: of one call
	} `json:"_meta"`
}

// tokens are how an agent counts them.
type tokens struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	Thought    int64 `json:"thoughtTokens"`
	CacheRead  int64 `json:"cachedReadTokens"`
	CacheWrite int64 `json:"cachedWriteTokens"`
}

// ofTurn is what the answer at the end of a turn counts.
func (t tokens) ofTurn() jobs.Usage {
	return jobs.Usage{Input: t.Input, Output: t.Output + t.Thought, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite}
}

// ofCall is what Qwen Code counts of one call: as the API does, it counts what was read from a cache as input,
// and thoughts as output.
func (t tokens) ofCall() jobs.Usage {
	return jobs.Usage{Input: max(0, t.Input-t.CacheRead), Output: t.Output, CacheRead: t.CacheRead, CacheWrite: t.CacheWrite}
}

// A tool is a call that has not ended.
type tool struct{ name, kind, path string }

// readUpdate reports what the agent does. It ignores the replay of an earlier process,
// which reported those events itself.
func (d *decoder) readUpdate(u *sessionUpdate, r *agent.Read) {
	if u.Type == "usage_update" && u.Cost.Currency == "USD" {
		d.spend(u.Cost.Amount)
	}
	if d.replay.on || d.replaysLate(u, r) {
		d.readReplay(u, r)
		return
	}
	if u.Type != "agent_message_chunk" && u.Type != "agent_thought_chunk" && u.Type != "usage_update" {
		d.flush(r)
	}
	switch u.Type {
	case "agent_message_chunk", "agent_thought_chunk":
		d.calls = d.calls.Add(u.Meta.Usage.ofCall())
		d.readChunk(u, r)
	case "tool_call", "tool_call_update":
		d.readTool(u, r)
	case "plan":
		r.Add(event.PlanUpdated{Items: u.Entries})
	case "usage_update":
		r.Add(event.Usage{Scope: "session", Tokens: event.Tokens{Context: &u.Used, Window: u.Size}})
	case "config_option_update":
		d.offers(u.Options)
	case "current_mode_update":
		r.Add(event.Notice{Type: "mode", Text: u.Mode})
	}
}

// textOf is the text of a block; another kind of block has none.
func textOf(block json.RawMessage) string {
	var b struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(block, &b) // as above
	return b.Text
}

// spend records what the whole session has cost so far. Earlier processes have counted
// their own costs, which the agent repeats while it replays them.
func (d *decoder) spend(usd float64) {
	if d.replay.on {
		d.earlier = usd
	}
	d.Sum.CostUSD = max(0, usd-d.earlier)
}

// readChunk handles a piece of a message. The message is complete when something else
// arrives.
func (d *decoder) readChunk(u *sessionUpdate, r *agent.Read) {
	text := textOf(u.Content)
	data := event.Message{Role: "assistant", Text: text, Message: u.MessageID}
	if u.Type == "agent_thought_chunk" {
		d.thought = appended(d.thought, text)
		r.Add(event.ThoughtDelta(data))
		return
	}
	if mode, changed := strings.CutPrefix(text, "[MODE_UPDATE] "); changed { // so Gemini CLI says it
		r.Add(event.Notice{Type: "mode", Text: mode})
		return
	}
	d.text = appended(d.text, text)
	r.Add(event.MessageDelta(data))
}

func appended(text, more string) string {
	if len(text) >= maxMessage {
		return text
	}
	return text + wording.Short(more, maxMessage)
}

// flush reports the messages that have arrived in pieces.
func (d *decoder) flush(r *agent.Read) {
	if d.thought != "" {
		r.Add(event.Thought{Role: "assistant", Text: d.thought})
	}
	if d.text != "" {
		d.result = d.text
		r.Add(event.Message{Role: "assistant", Text: d.text})
	}
	d.text, d.thought = "", ""
}

var toolKinds = map[string]string{
	"read": "read", "edit": "edit", "delete": "edit", "move": "edit", "search": "search", "execute": "execute", "fetch": "fetch",
	"switch_mode": "plan",
}

// readTool handles a tool call. Agents may report its beginning twice, or not at all.
func (d *decoder) readTool(u *sessionUpdate, r *agent.Read) {
	t, known := d.tools[u.Call]
	if kind := toolKinds[u.Kind]; kind != "" {
		t.kind = kind
	}
	if sign := d.with.Subagents; sign != "" && !known && (u.Title == sign || strings.HasPrefix(u.Call, sign)) {
		t.kind = "agent"
	}
	if u.Title != "" {
		t.name = wording.Short(u.Title, 120)
	}
	if len(u.Locations) > 0 {
		t.path = wording.Short(u.Locations[0].Path, 4096)
	}
	kind := wording.First(t.kind, "other")
	output, edited := contentOf(u.Content)
	if !known {
		r.Add(event.ToolStarted{Call: u.Call, Name: kind, Kind: kind, Title: t.name, Input: u.Input})
	}
	ended := u.Status == string(sdk.ToolCallStatusCompleted) || u.Status == string(sdk.ToolCallStatusFailed)
	if !ended {
		decode.Remember(d.tools, u.Call, t)
		if known {
			r.Add(event.ToolOutput{Call: u.Call, Name: kind, Kind: kind, Title: t.name, Input: u.Input, Output: output})
		}
		return
	}
	delete(d.tools, u.Call)
	ok := u.Status == string(sdk.ToolCallStatusCompleted)
	r.Add(event.ToolEnded{Call: u.Call, Name: kind, Kind: kind, Title: t.name, OK: &ok, Output: output})
	if len(edited) == 0 && kind == "edit" && t.path != "" {
		edited = []event.FileChanged{{Path: t.path, Change: "update"}}
	}
	for _, file := range edited {
		if ok {
			file.Call = u.Call
			r.Add(file)
		}
	}
}

// contentOf is the text of a tool's result, and the files that the tool changed.
func contentOf(content json.RawMessage) (string, []event.FileChanged) {
	var parts []struct {
		Type    string `json:"type"`
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
		Path string  `json:"path"`
		Old  *string `json:"oldText"`
	}
	_ = json.Unmarshal(content, &parts) // fields that cannot be read stay zero
	var b strings.Builder
	var files []event.FileChanged
	for _, p := range parts {
		switch p.Type {
		case "content":
			b.WriteString(p.Content.Text)
		case "diff":
			file := event.FileChanged{Path: p.Path, Change: "update"}
			if p.Old == nil || *p.Old == "" {
				file.Change = "create"
			}
			files = append(files, file)
		}
	}
	return b.String(), files
}

// readRequest handles a request of the agent. Where no person can answer, it grants
// permission: the jail limits what the agent can do.
func (d *decoder) readRequest(m jsonrpc.Message, p *agentParams, r *agent.Read) {
	id, ok := m.AnswerID()
	if !ok {
		return
	}
	d.flush(r)
	if m.Method != sdk.ClientMethodSessionRequestPermission {
		r.Add(event.AskOpened{Ask: id, Type: "other", Tool: m.Method})
		r.Add(event.AskClosed{Ask: id, How: "declined"})
		r.Reply = append(r.Reply, d.rpc.Refuse(m.ID))
		return
	}
	var choices []decode.Choice
	for _, o := range p.Options {
		choices = append(choices, decode.Choice{Option: control.Option{Label: o.Name, Kind: o.Kind}, Send: decode.JSON(permissionOutcome(o.ID))})
	}
	open := decode.Permission(wording.First(p.Tool.Title, "May it?"), choices)
	open.ID = m.ID
	input := p.Tool.Input
	if input == nil && slices.Contains(d.with.ShowsInput, p.Tool.Kind) {
		input = decode.JSON(map[string]any{"title": p.Tool.Title, "content": p.Tool.Content})
	}
	r.Add(event.AskOpened{
		Ask: id, Type: "permission", Tool: wording.Short(p.Tool.Title, 120), Call: p.Tool.Call, Questions: open.List(), Input: input,
	})
	if d.launch.Job.Agent.Interactive {
		decode.Remember(d.asks, id, open)
		return
	}
	how, reply := "declined", json.RawMessage(decode.JSON(permissionOutcome("")))
	if allow := open.Offers(allowKinds...); allow != nil {
		how, reply = "allowed", allow.Send
	}
	r.Add(event.AskClosed{Ask: id, How: how})
	r.Reply = append(r.Reply, d.rpc.Reply(m.ID, reply))
}
