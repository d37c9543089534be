package agent

import (
	"encoding/json"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// maxSpoken bounds a message that arrives in pieces.
const maxSpoken = 1 << 20

// acpParams are the parameters of messages that the agent sends on its own. Only the
// fields that are used have names.
type acpParams struct {
	Update  acpUpdate `json:"update"`
	Tool    acpUpdate `json:"toolCall"`
	Options []struct {
		ID   string `json:"optionId"`
		Name string `json:"name"`
		Kind string `json:"kind"`
	} `json:"options"`
}

type acpUpdate struct {
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
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
	Used int64 `json:"used"`
	Cost struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	} `json:"cost"`
}

// An acpTool is a call that has not ended.
type acpTool struct{ name, kind, path string }

// readUpdate reports what the agent does. It ignores the replay of an earlier process,
// which reported those events itself.
func (d *acpTalk) readUpdate(u *acpUpdate, r *Read) {
	if u.Type == "usage_update" && u.Cost.Currency == "USD" {
		d.spend(u.Cost.Amount)
	}
	if d.replays {
		return
	}
	if u.Type != "agent_message_chunk" && u.Type != "agent_thought_chunk" && u.Type != "usage_update" {
		d.flush(r)
	}
	switch u.Type {
	case "agent_message_chunk", "agent_thought_chunk":
		d.readChunk(u, r)
	case "tool_call", "tool_call_update":
		d.readTool(u, r)
	case "plan":
		r.add(event.PlanUpdated{Items: u.Entries})
	case "usage_update":
		r.add(event.Usage{Scope: "session", Tokens: event.Tokens{Context: &u.Used}})
	case "current_mode_update":
		r.add(event.Notice{Type: "mode", Text: u.Mode})
	}
}

// spend records what the whole session has cost so far. Earlier processes have counted
// their own costs, which the agent repeats while it replays them.
func (d *acpTalk) spend(usd float64) {
	if d.replays {
		d.earlier = usd
	}
	d.total.CostUSD = max(0, usd-d.earlier)
}

// readChunk handles a piece of a message. The message is complete when something else
// arrives.
func (d *acpTalk) readChunk(u *acpUpdate, r *Read) {
	var block struct {
		Text string `json:"text"`
	}
	_ = json.Unmarshal(u.Content, &block) // another kind of block has no text
	data := event.Message{Role: "assistant", Text: block.Text, Message: u.MessageID}
	if u.Type == "agent_thought_chunk" {
		d.thought = appended(d.thought, block.Text)
		r.add(event.ThoughtDelta(data))
		return
	}
	d.text = appended(d.text, block.Text)
	r.add(event.MessageDelta(data))
}

func appended(text, more string) string {
	if len(text) >= maxSpoken {
		return text
	}
	return text + short(more, maxSpoken)
}

// flush reports the messages that have arrived in pieces.
func (d *acpTalk) flush(r *Read) {
	if d.thought != "" {
		r.add(event.Thought{Role: "assistant", Text: d.thought})
	}
	if d.text != "" {
		d.result = d.text
		r.add(event.Message{Role: "assistant", Text: d.text})
	}
	d.text, d.thought = "", ""
}

var acpKinds = map[string]string{
	"read": "read", "edit": "edit", "delete": "edit", "move": "edit", "search": "search", "execute": "execute", "fetch": "fetch",
	"switch_mode": "plan",
}

// readTool handles a tool call. Agents may report its beginning twice, or not at all.
func (d *acpTalk) readTool(u *acpUpdate, r *Read) {
	t, known := d.tools[u.Call]
	if kind := acpKinds[u.Kind]; kind != "" {
		t.kind = kind
	}
	if u.Title != "" {
		t.name = short(u.Title, 120)
	}
	if len(u.Locations) > 0 {
		t.path = short(u.Locations[0].Path, 4096)
	}
	kind := firstText(t.kind, "other")
	output, edited := acpContent(u.Content)
	if !known {
		r.add(event.ToolStarted{Call: u.Call, Name: kind, Kind: kind, Title: t.name, Input: u.Input})
	}
	ended := u.Status == string(sdk.ToolCallStatusCompleted) || u.Status == string(sdk.ToolCallStatusFailed)
	if !ended {
		remember(d.tools, u.Call, t)
		if known {
			r.add(event.ToolOutput{Call: u.Call, Name: kind, Kind: kind, Title: t.name, Input: u.Input, Output: output})
		}
		return
	}
	delete(d.tools, u.Call)
	ok := u.Status == string(sdk.ToolCallStatusCompleted)
	r.add(event.ToolEnded{Call: u.Call, Name: kind, Kind: kind, Title: t.name, OK: &ok, Output: output})
	if len(edited) == 0 && kind == "edit" && t.path != "" {
		edited = []event.FileChanged{{Path: t.path, Change: "update"}}
	}
	for _, file := range edited {
		if ok {
			file.Call = u.Call
			r.add(file)
		}
	}
}

// acpContent is the text of a tool's result, and the files that the tool changed.
func acpContent(content json.RawMessage) (string, []event.FileChanged) {
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
func (d *acpTalk) readRequest(m rpcMessage, p *acpParams, r *Read) {
	id, ok := m.answerable()
	if !ok {
		return
	}
	d.flush(r)
	if m.Method != sdk.ClientMethodSessionRequestPermission {
		r.add(event.AskOpened{Ask: id, Type: "other", Tool: m.Method})
		r.add(event.AskClosed{Ask: id, How: "declined"})
		r.Reply = append(r.Reply, d.refuse(m.ID))
		return
	}
	var choices []choice
	for _, o := range p.Options {
		choices = append(choices, choice{control.Option{Label: o.Name, Kind: o.Kind}, jsonLine(acpOutcome(o.ID))})
	}
	open := permission(firstText(p.Tool.Title, "May it?"), choices)
	open.id = m.ID
	r.add(event.AskOpened{
		Ask: id, Type: "permission", Tool: short(p.Tool.Title, 120), Call: p.Tool.Call, Questions: open.list(), Input: p.Tool.Input,
	})
	if d.launch.Job.Agent.Interactive {
		remember(d.asks, id, open)
		return
	}
	how, reply := "declined", json.RawMessage(jsonLine(acpOutcome("")))
	if allow := open.offers(acpAllows...); allow != nil {
		how, reply = "allowed", allow.send
	}
	r.add(event.AskClosed{Ask: id, How: how})
	r.Reply = append(r.Reply, d.answer(m.ID, reply))
}
