package agent

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// codexDecoder decodes one run of codex exec: at most one turn.
type codexDecoder struct {
	turns
	answer string // the last message: the turn's result
}

func (codex) Decoder(l Launch) Decoder {
	if l.Job.Agent.Interactive {
		d := newCodexTalk(l)
		d.hello() // the plan sends the request, and this decoder reads its answer
		return d
	}
	return &codexDecoder{turns: turns{name: "codex", total: Total{Session: l.Resume, Model: l.Job.Agent.Model}}}
}

// Line implements [Decoder].
func (d *codexDecoder) Line(line Line) Read {
	return d.line(line, func(object json.RawMessage, r *Read) event.AgentRaw {
		var out codexOut
		_ = json.Unmarshal(object, &out) // fields of an unexpected type stay zero
		d.read(&out, r)
		return event.AgentRaw{Type: out.Type, Subtype: out.Item.Type}
	})
}

func (d *codexDecoder) read(out *codexOut, r *Read) {
	switch out.Type {
	case "thread.started":
		d.total.Session = out.Thread
		r.add(event.SessionStarted{Session: out.Thread, Model: d.total.Model})
	case "turn.started":
		d.begin(r)
	case "item.started", "item.updated", "item.completed":
		d.retried = ""
		if out.Item.Type == "agent_message" {
			d.answer = out.Item.Text
		}
		readCodexItem(strings.TrimPrefix(out.Type, "item."), out.Item, r)
	case "turn.completed":
		u := out.Usage
		// The input includes what was read from the cache.
		d.total.Usage = jobs.Usage{Input: u.Input - u.Cached, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite}
		d.ended(event.TurnEnded{Status: "ok", Reason: "completed", Result: d.answer}, "", r)
	case "turn.failed":
		message := out.Error.Message
		d.ended(event.TurnEnded{Status: "error", Reason: "error", Errors: []string{message}, HTTP: codexStatus(message)}, codexReason(message), r)
	case "error":
		d.readError(out.Message, r)
	}
}

func (d *codexDecoder) ended(turn event.TurnEnded, why jobs.Reason, r *Read) {
	// The counts are those of the thread, which began before this process if it was
	// resumed.
	turn.Usage, turn.UsageScope = d.total.Usage, "session"
	d.end(turn, why, r)
}

var codexAgain = regexp.MustCompile(`^Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting for network)(?: \((.*)\))?$`)

// readError classifies the errors within a turn: most say that the program retries the
// model.
func (d *codexDecoder) readError(message string, r *Read) {
	again := codexAgain.FindStringSubmatch(message)
	if again == nil {
		r.add(event.Notice{Type: "error", Text: message})
		return
	}
	d.retried = codexReason(again[3])
	attempt, _ := strconv.Atoi(again[1]) // zero where it has no number
	limit, _ := strconv.Atoi(again[2])   // as above
	r.add(event.Retry{
		Attempt: attempt, Max: limit, HTTP: codexStatus(again[3]), Class: string(d.retried), Hopeless: jobs.Reasons[d.retried].Hopeless(),
	})
}

// readCodexItem reports an item at a stage: started, updated or completed.
func readCodexItem(stage string, item codexItem, r *Read) {
	ok := item.Status != "failed" && item.Status != "declined"
	tool := event.Tool{Call: item.ID, Name: item.Type, Parent: item.Parent}
	switch item.Type {
	case "agent_message":
		r.add(event.Message{Role: "assistant", Text: item.Text, Message: item.ID, Parent: item.Parent})
		return
	case "reasoning":
		r.add(event.Thought{Role: "assistant", Text: item.Text, Message: item.ID, Parent: item.Parent})
		return
	case "todo_list":
		r.add(event.PlanUpdated{Call: item.ID, Items: item.Items})
		return
	case "error":
		r.add(event.Notice{Type: "error", Text: item.Message})
		return
	case "command_execution":
		tool.Kind, tool.Title, tool.Output, tool.ExitCode = "execute", codexTitle(item.Command), item.Output, item.ExitCode
	case "file_change":
		tool.Kind = "edit"
		if len(item.Changes) > 0 {
			tool.Title = short(item.Changes[0].Path, 120)
		}
	case "mcp_tool_call":
		tool.Kind, tool.Name, tool.Title, tool.Input, tool.Result = "mcp", item.Tool, item.Server, item.Arguments, item.Result
	case "web_search":
		tool.Kind, tool.Title = "fetch", short(item.Query, 120)
	default:
		return
	}
	switch stage {
	case "started":
		r.add(event.ToolStarted(tool))
	case "updated":
		r.add(event.ToolOutput(tool))
	default:
		tool.OK = &ok
		r.add(event.ToolEnded(tool))
		if item.Type == "file_change" && ok {
			codexFiles(item, r)
		}
	}
}

func codexFiles(item codexItem, r *Read) {
	for _, c := range item.Changes {
		change := c.Kind
		if change == "add" {
			change = "create"
		}
		r.add(event.FileChanged{Path: c.Path, Change: change, Call: item.ID})
	}
}

// codexTitle is a command without the shell around it.
func codexTitle(command string) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(command, "/bin/bash -lc "), "\n")
	return short(strings.Trim(line, `'"`), 120)
}

var codexHTTP = regexp.MustCompile(`status:? (\d{3})\b`)

func codexStatus(message string) int {
	m := codexHTTP.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	status, _ := strconv.Atoi(m[1]) // three digits
	return status
}

// codexReason classifies a failure by its text, because this program gives no code.
func codexReason(message string) jobs.Reason {
	switch status := codexStatus(message); {
	case strings.HasPrefix(message, "Missing environment variable"):
		return jobs.Unauthorized
	case strings.HasPrefix(message, "Quota exceeded"):
		return jobs.Billing
	case httpReason(status) != jobs.AgentFailed:
		return httpReason(status)
	case strings.Contains(message, "model does not exist"):
		return jobs.ModelNotFound
	case strings.Contains(message, "Connection failed"), strings.Contains(message, "stream disconnected"),
		strings.Contains(message, "experiencing high demand"), message == "":
		return jobs.ModelUnavailable
	}
	return jobs.AgentFailed
}
