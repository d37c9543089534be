package claude

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// maxResult is how much of a tool's structured result an event repeats; the line itself
// has all of it.
const maxResult = 8 << 10

func (d *decoder) readAssistant(out *outputLine, r *agent.Read) {
	var m apiMessage
	_ = json.Unmarshal(out.Message, &m) // an unknown message has no blocks, and becomes agent.raw
	d.retried = ""
	if out.Parent == "" && m.Usage.sum() > 0 {
		d.call = apiMessage{Model: m.Model, Usage: m.Usage}
	}
	if out.Error != "" {
		d.failure = apiFailure{class: out.Error, http: out.APIStatus}
	}
	for _, b := range blocksOf(m.Content) {
		switch b.Type {
		case "text":
			r.Add(event.Message{
				Role: "assistant", Text: b.Text, Message: m.ID, Parent: out.Parent, Error: out.Error, Aborted: out.Aborted,
			})
		case "thinking":
			r.Add(event.Thought{Role: "assistant", Text: b.Thinking, Message: m.ID, Parent: out.Parent})
		case "tool_use", "server_tool_use", "mcp_tool_use":
			t := tool{wording.Short(b.Name, 120), toolKind(b.Name)}
			decode.Remember(d.tools, b.ID, t)
			r.Add(event.ToolStarted{
				Call: b.ID, Name: t.name, Kind: t.kind, Title: toolTitle(b.Input), Parent: out.Parent, Input: b.Input,
			})
			if plan, ok := planOf(b); ok {
				r.Add(plan)
			}
		}
	}
}

func (d *decoder) readUser(out *outputLine, r *agent.Read) {
	if out.IsReplay {
		delete(d.pending, out.UUID)
		r.Add(event.InputState{Input: out.UUID, State: "taken"})
		return
	}
	var m apiMessage
	_ = json.Unmarshal(out.Message, &m) // as above
	result := out.ToolResult
	for _, b := range blocksOf(m.Content) {
		switch b.Type {
		case "text":
			r.Add(event.Message{Role: "user", Text: b.Text, Parent: out.Parent})
		case "tool_result":
			d.endTool(out, b, result, r)
			result = nil // the line belongs to one call
		}
	}
}

func (d *decoder) endTool(out *outputLine, b block, result json.RawMessage, r *agent.Read) {
	ok := !b.IsError
	t := d.tools[b.ToolUseID]
	delete(d.tools, b.ToolUseID)
	data := event.Tool{
		Call: b.ToolUseID, Name: t.name, Kind: t.kind, Parent: out.Parent, OK: &ok, Output: textOf(b.Content),
	}
	if code, found := exitCode(data.Output); found && t.kind == "execute" {
		data.ExitCode = &code
	}
	if len(result) <= maxResult {
		data.Result = result
	}
	r.Add(event.ToolEnded(data))
	if file, changed := fileOf(result); changed && ok {
		file.Call = b.ToolUseID
		r.Add(file)
	}
}

// blocksOf decodes the content of a message: blocks, or a single text.
func blocksOf(content json.RawMessage) []block {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	var blocks []block
	_ = json.Unmarshal(content, &blocks) // a block that cannot be decoded stays zero, and is skipped
	return blocks
}

// textOf is the text of a tool's result: a text, or blocks of text.
func textOf(content json.RawMessage) string {
	var b strings.Builder
	for i, block := range blocksOf(content) {
		if i > 0 {
			b.WriteByte('\n')
		}
		switch block.Type {
		case "text":
			b.WriteString(block.Text)
		default:
			fmt.Fprintf(&b, "[%s]", block.Type)
		}
	}
	return b.String()
}

// fileOf returns the file that a tool changed, from its structured result. The result
// of reading a file has no such path at the top, only below "file".
func fileOf(result json.RawMessage) (event.FileChanged, bool) {
	var res struct {
		Type     string          `json:"type"`
		Path     string          `json:"filePath"`
		Notebook string          `json:"notebook_path"`
		Patch    json.RawMessage `json:"structuredPatch"`
	}
	_ = json.Unmarshal(result, &res) // a text if the call failed
	change := "update"
	if res.Type == "create" {
		change = "create"
	}
	if res.Notebook != "" {
		return event.FileChanged{Path: res.Notebook, Change: change}, true
	}
	return event.FileChanged{Path: res.Path, Change: change}, res.Path != "" && res.Patch != nil
}

// planOf is the plan that a call of a planning tool writes.
func planOf(b block) (event.PlanUpdated, bool) {
	var in struct {
		Todos json.RawMessage `json:"todos"`
	}
	switch b.Name {
	case "TodoWrite":
		_ = json.Unmarshal(b.Input, &in) // without a list there is no plan
		return event.PlanUpdated{Call: b.ID, Items: in.Todos}, in.Todos != nil
	case "TaskCreate", "TaskUpdate":
		return event.PlanUpdated{Call: b.ID, Items: b.Input}, b.Input != nil
	}
	return event.PlanUpdated{}, false
}

// toolKind maps the tools to the few kinds that all agents share.
func toolKind(name string) string {
	switch name {
	case "Read", "NotebookRead", "LS":
		return "read"
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		return "edit"
	case "Bash", "BashOutput", "KillShell", "Monitor", "TaskStop":
		return "execute"
	case "Grep", "Glob", "ToolSearch":
		return "search"
	case "WebFetch", "WebSearch":
		return "fetch"
	case "Task", "Agent", "SendMessage", "Workflow", "Skill":
		return "agent"
	case "TodoWrite", "TaskCreate", "TaskUpdate", "EnterPlanMode", "ExitPlanMode":
		return "plan"
	case "AskUserQuestion":
		return "ask"
	}
	if strings.HasPrefix(name, "mcp__") {
		return "mcp"
	}
	return "other"
}

// toolTitle is the argument that describes a call best.
func toolTitle(input json.RawMessage) string {
	var in map[string]json.RawMessage
	_ = json.Unmarshal(input, &in) // without arguments there is no title
	for _, name := range []string{"command", "file_path", "notebook_path", "path", "pattern", "url", "query", "description", "prompt"} {
		var text string
		if json.Unmarshal(in[name], &text) == nil && text != "" {
			line, _, _ := strings.Cut(text, "\n")
			return wording.Short(line, 120)
		}
	}
	return ""
}

// exitCode reads "Exit code 3" at the beginning of a shell's output.
func exitCode(output string) (int, bool) {
	rest, found := strings.CutPrefix(output, "Exit code ")
	if !found {
		return 0, false
	}
	digits, _, _ := strings.Cut(rest, "\n")
	code, err := strconv.Atoi(digits)
	return code, err == nil
}
