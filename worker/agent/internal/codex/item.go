package codex

import (
	"encoding/json"
	"strings"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// A serverItem is an item of the app server: the same that codex exec prints, under
// other names.
type serverItem struct {
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
	Prompt    string          `json:"prompt"`
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

var itemTypes = map[string]string{
	"agentMessage": "agent_message", "reasoning": "reasoning", "commandExecution": "command_execution",
	"fileChange": "file_change", "mcpToolCall": "mcp_tool_call", "webSearch": "web_search", "collabAgentToolCall": "collab_tool_call",
}

// item is the same item as codex exec prints it.
func (t serverItem) item(parent string) execItem {
	i := execItem{
		ID: t.ID, Type: itemTypes[t.Type], Text: t.Text, Command: t.Command, Output: t.Output, ExitCode: t.ExitCode,
		Status: t.Status, Server: t.Server, Tool: t.Tool, Query: t.Query, Prompt: t.Prompt, Arguments: t.Arguments, Result: t.Result, Parent: parent,
	}
	if t.Type == "reasoning" {
		i.Text = strings.Join(t.Summary, "\n")
	}
	for _, c := range t.Changes {
		i.Changes = append(i.Changes, fileChange{Path: c.Path, Kind: c.Kind.Type})
	}
	return i
}

func (d *appServer) readServerItem(method string, p *serverParams, r *agent.Read) {
	stage := strings.TrimPrefix(method, "item/")
	d.Retried = ""
	switch t := p.Item; t.Type {
	case "userMessage":
		if stage == "started" && t.Client != "" {
			delete(d.sent, t.Client)
			r.Add(event.InputState{Input: t.Client, State: "taken"})
		}
		return
	case "contextCompaction":
		d.readCompaction(stage, p, r)
		return
	case "agentMessage", "reasoning":
		if stage == "started" {
			return // the item has no text yet
		}
		if t.Type == "agentMessage" && d.parent(p) == "" {
			d.result = t.Text
		}
	}
	readItem(stage, p.Item.item(d.parent(p)), r)
}

// readCompaction tells of a conversation that becomes shorter, with the words that other agents
// have for it.
func (d *appServer) readCompaction(stage string, p *serverParams, r *agent.Read) {
	switch {
	case d.parent(p) != "":
	case stage == "started":
		r.Add(event.StateChanged{State: "compacting"})
	default:
		r.Add(event.Notice{Type: "compact_boundary"})
		r.Add(event.StateChanged{State: "running"})
	}
}
