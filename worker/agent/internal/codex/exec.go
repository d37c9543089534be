package codex

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// execDecoder decodes one run of codex exec: at most one turn.
type execDecoder struct {
	decode.Turns
	answer string // the last message: the turn's result
}

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	if l.Job.Agent.Interactive {
		return newAppServer(l)
	}
	return &execDecoder{Turns: decode.Turns{Name: "codex", Sum: agent.Total{Session: l.Resume, Model: l.Job.Agent.Model}}}
}

// Line implements [agent.Decoder].
func (d *execDecoder) Line(line agent.Line) agent.Read {
	return d.Decode(line, func(object json.RawMessage, r *agent.Read) event.AgentRaw {
		var out execLine
		_ = json.Unmarshal(object, &out) // fields of an unexpected type stay zero
		d.read(&out, r)
		return event.AgentRaw{Type: out.Type, Subtype: out.Item.Type}
	})
}

func (d *execDecoder) read(out *execLine, r *agent.Read) {
	switch out.Type {
	case "thread.started":
		d.Sum.Session = out.Thread
		r.Add(event.SessionStarted{Session: out.Thread, Model: d.Sum.Model})
	case "turn.started":
		d.Begin(r)
	case "item.started", "item.updated", "item.completed":
		d.Retried = ""
		if out.Item.Type == "agent_message" {
			d.answer = out.Item.Text
		}
		readItem(strings.TrimPrefix(out.Type, "item."), out.Item, r)
	case "turn.completed":
		u := out.Usage
		// The input includes what was read from the cache.
		d.Sum.Usage = jobs.Usage{Input: u.Input - u.Cached, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite}
		d.ended(event.TurnEnded{Status: "ok", Reason: "completed", Result: d.answer}, "", r)
	case "turn.failed":
		message := out.Error.Message
		d.ended(event.TurnEnded{Status: "error", Reason: "error", Errors: []string{message}, HTTP: decode.StatusIn(message)}, reasonFor(message), r)
	case "error":
		d.readError(out.Message, r)
	}
}

func (d *execDecoder) ended(turn event.TurnEnded, why jobs.Reason, r *agent.Read) {
	// The counts are those of the thread, which began before this process if it was
	// resumed.
	turn.Usage, turn.UsageScope = d.Sum.Usage, "session"
	d.End(turn, why, r)
}

var reconnecting = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting for network)(?: \((.*)\))?$`)
})

// readError classifies the errors within a turn: most say that the program retries the
// model.
func (d *execDecoder) readError(message string, r *agent.Read) {
	again := reconnecting().FindStringSubmatch(message)
	if again == nil {
		r.Add(event.Notice{Type: "error", Text: message})
		return
	}
	d.Retried = reasonFor(again[3])
	attempt, _ := strconv.Atoi(again[1]) // zero where it has no number
	limit, _ := strconv.Atoi(again[2])   // as above
	r.Add(event.Retry{
		Attempt: attempt, Max: limit, HTTP: decode.StatusIn(again[3]), Class: string(d.Retried), Hopeless: jobs.Reasons[d.Retried].Hopeless(),
	})
}

// readItem reports an item at a stage: started, updated or completed.
func readItem(stage string, item execItem, r *agent.Read) {
	ok := item.Status != "failed" && item.Status != "declined"
	tool := event.Tool{Call: item.ID, Name: item.Type, Parent: item.Parent}
	switch item.Type {
	case "agent_message":
		r.Add(event.Message{Role: "assistant", Text: item.Text, Message: item.ID, Parent: item.Parent})
		return
	case "reasoning":
		r.Add(event.Thought{Role: "assistant", Text: item.Text, Message: item.ID, Parent: item.Parent})
		return
	case "todo_list":
		r.Add(event.PlanUpdated{Call: item.ID, Items: item.Items})
		return
	case "error":
		r.Add(event.Notice{Type: "error", Text: item.Message})
		return
	case "command_execution":
		tool.Kind, tool.Title, tool.Output, tool.ExitCode = "execute", commandTitle(item.Command), item.Output, item.ExitCode
	case "file_change":
		tool.Kind = "edit"
		if len(item.Changes) > 0 {
			tool.Title = wording.Short(item.Changes[0].Path, 120)
		}
	case "mcp_tool_call":
		tool.Kind, tool.Name, tool.Title, tool.Input, tool.Result = "mcp", item.Tool, item.Server, item.Arguments, item.Result
	case "web_search":
		tool.Kind, tool.Title = "fetch", wording.Short(item.Query, 120)
	case "collab_tool_call":
		tool.Kind, tool.Name, tool.Title = "agent", item.Tool, wording.Short(item.Prompt, 120)
	default:
		return
	}
	switch stage {
	case "started":
		r.Add(event.ToolStarted(tool))
	case "updated":
		r.Add(event.ToolOutput(tool))
	default:
		tool.OK = &ok
		r.Add(event.ToolEnded(tool))
		if item.Type == "file_change" && ok {
			addFiles(item, r)
		}
	}
}

func addFiles(item execItem, r *agent.Read) {
	for _, c := range item.Changes {
		change := c.Kind
		if change == "add" {
			change = "create"
		}
		r.Add(event.FileChanged{Path: c.Path, Change: change, Call: item.ID})
	}
}

// commandTitle is a command without the shell around it.
func commandTitle(command string) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(command, "/bin/bash -lc "), "\n")
	return wording.Short(strings.Trim(line, `'"`), 120)
}

// reasonFor classifies a failure by its text, because this program gives no code.
func reasonFor(message string) jobs.Reason {
	switch status := decode.StatusIn(message); {
	case strings.HasPrefix(message, "Missing environment variable"):
		return jobs.Unauthorized
	case strings.HasPrefix(message, "Quota exceeded"):
		return jobs.Billing
	case decode.HTTPReason(status) != jobs.AgentFailed:
		return decode.HTTPReason(status)
	case strings.Contains(message, "model does not exist"):
		return jobs.ModelNotFound
	case strings.Contains(message, "Connection failed"), strings.Contains(message, "stream disconnected"),
		strings.Contains(message, "experiencing high demand"), message == "":
		return jobs.ModelUnavailable
	}
	return jobs.AgentFailed
}
