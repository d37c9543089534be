package agent

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// A codexThing is an item of the app server: what codex exec tells, too, in
// other words.
type codexThing struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Client    string          `json:"clientId"`
	Text      string          `json:"text"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregatedOutput"`
	ExitCode  *int            `json:"exitCode"`
	Status    string          `json:"status"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Query     string          `json:"query"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Summary   []string        `json:"summary"`
	Changes   []struct {
		Path string `json:"path"`
		Kind struct {
			Type string `json:"type"`
		} `json:"kind"`
	} `json:"changes"`
}

var codexThings = map[string]string{
	"agentMessage": "agent_message", "reasoning": "reasoning", "commandExecution": "command_execution",
	"fileChange": "file_change", "mcpToolCall": "mcp_tool_call", "webSearch": "web_search",
}

// item is the same in the words of codex exec.
func (t codexThing) item(parent string) codexItem {
	i := codexItem{
		ID: t.ID, Type: codexThings[t.Type], Text: t.Text, Command: t.Command, Output: t.Output, ExitCode: t.ExitCode,
		Status: t.Status, Server: t.Server, Tool: t.Tool, Query: t.Query, Arguments: t.Arguments, Result: t.Result, Parent: parent,
	}
	if t.Type == "reasoning" {
		i.Text = strings.Join(t.Summary, "\n")
	}
	for _, c := range t.Changes {
		i.Changes = append(i.Changes, codexChange{Path: c.Path, Kind: c.Kind.Type})
	}
	return i
}

func (d *codexTalk) readThing(method string, p *codexParams, r *Read) {
	stage := strings.TrimPrefix(method, "item/")
	d.retried = ""
	switch t := p.Item; t.Type {
	case "userMessage":
		if stage == "started" && t.Client != "" {
			delete(d.told, t.Client)
			r.add(event.InputState{Input: t.Client, State: "taken"})
		}
		return
	case "agentMessage", "reasoning":
		if stage == "started" {
			return // it has no text yet
		}
		if t.Type == "agentMessage" && d.parent(p) == "" {
			d.result = t.Text
		}
	}
	readCodexItem(stage, p.Item.item(d.parent(p)), r)
}

// readRequest takes what the program asks of its host.
func (d *codexTalk) readRequest(m rpcMessage, p *codexParams, r *Read) {
	id, ok := m.answerable()
	if !ok {
		return
	}
	var q struct {
		Questions json.RawMessage `json:"questions"`
	}
	open := ask{id: m.ID}
	opened := control.Ask{Ask: id, Type: "permission", Call: p.ItemID, Input: m.Params}
	switch m.Method {
	case "item/commandExecution/requestApproval":
		opened.Tool = "command_execution"
	case "item/fileChange/requestApproval":
		opened.Tool = "file_change"
	case "item/tool/requestUserInput":
		_ = json.Unmarshal(m.Params, &q) // without a list there is no question
		opened.Type, opened.Questions, opened.Input = "question", q.Questions, nil
		var names []struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(q.Questions, &names) == nil && json.Unmarshal(q.Questions, &open.questions) == nil && len(names) > 0 {
			for _, n := range names {
				open.names = append(open.names, n.ID)
			}
			break
		}
		fallthrough
	default:
		r.add(event.AskOpened{Ask: id, Type: "other", Tool: m.Method})
		r.add(event.AskClosed{Ask: id, How: "declined"})
		r.Reply = append(r.Reply, d.refuse(m.ID))
		return
	}
	remember(d.asks, id, open)
	r.add(event.AskOpened(opened))
}
