package agent

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// codexDecoder reads one run of codex exec: one turn, at most.
type codexDecoder struct {
	open    bool
	turn    int
	last    *jobs.TurnData
	retried jobs.Reason
	total   Total
	answer  string // the last message: the turn's result
	words   lastWords
}

func (codex) Decoder(l Launch) Decoder {
	return &codexDecoder{total: Total{Session: l.Resume, Model: l.Job.Agent.Model}}
}

// Line implements [Decoder].
func (d *codexDecoder) Line(line Line) Read {
	raw, object := parse(line)
	var r Read
	if line.Stream == Stderr || object == nil {
		r.Events = []jobs.Event{d.words.event(line, raw)}
	} else {
		var out codexOut
		_ = json.Unmarshal(object, &out) // what has an unexpected type stays zero
		d.read(&out, &r)
		if len(r.Events) == 0 {
			r.add(jobs.AgentRaw, rawData{Type: out.Type, Subtype: out.Item.Type})
		}
		r.Events[0].Raw = raw
	}
	for i := range r.Events {
		r.Events[i].Agent, r.Events[i].Turn = "codex", d.turn
	}
	if d.last != nil && !d.open {
		r.State = Idle
	}
	if jobs.Reasons[d.retried].Hopeless {
		r.Hopeless = d.retried
	}
	return r
}

func (d *codexDecoder) read(out *codexOut, r *Read) {
	switch out.Type {
	case "thread.started":
		d.total.Session = out.Thread
		r.add(jobs.SessionStarted, sessionData{Session: out.Thread, Model: d.total.Model})
	case "turn.started":
		d.turn++
		d.open = true
		r.add(jobs.TurnStarted, stateData{})
	case "item.started", "item.updated", "item.completed":
		d.retried = ""
		d.readItem(strings.TrimPrefix(out.Type, "item."), out.Item, r)
	case "turn.completed":
		u := out.Usage
		// What was read from the cache is in the input here.
		d.total.Usage = jobs.Usage{Input: u.Input - u.Cached, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite}
		d.end(jobs.TurnData{Status: "ok", Reason: "completed", Result: d.answer}, r)
	case "turn.failed":
		d.end(jobs.TurnData{Status: "error", Reason: "error", Errors: []string{out.Error.Message}, HTTP: codexStatus(out.Error.Message)}, r)
	case "error":
		d.readError(out.Message, r)
	}
}

func (d *codexDecoder) end(turn jobs.TurnData, r *Read) {
	// The counts are those of the thread, which is longer than this process
	// where it was resumed.
	turn.Usage, turn.UsageScope = d.total.Usage, "session"
	d.open, d.last, d.retried = false, &turn, ""
	d.total.Turns = d.turn
	r.add(jobs.TurnEnded, turn)
}

var codexAgain = regexp.MustCompile(`^Reconnecting\.\.\. (?:(\d+)/(\d+)|waiting for network)(?: \((.*)\))?$`)

// readError sorts the errors within a turn: most say that the model is being
// tried again.
func (d *codexDecoder) readError(message string, r *Read) {
	again := codexAgain.FindStringSubmatch(message)
	if again == nil {
		r.add(jobs.Notice, noticeData{Type: "error", Text: message})
		return
	}
	d.retried = codexReason(again[3])
	attempt, _ := strconv.Atoi(again[1]) // zero where it has no number
	limit, _ := strconv.Atoi(again[2])   // as above
	r.add(jobs.RetryReported, jobs.RetryData{
		Attempt: attempt, Max: limit, HTTP: codexStatus(again[3]), Class: string(d.retried), Hopeless: jobs.Reasons[d.retried].Hopeless,
	})
}

func (d *codexDecoder) readItem(stage string, item codexItem, r *Read) {
	ok := item.Status != "failed" && item.Status != "declined"
	tool := jobs.ToolData{Call: item.ID, Name: item.Type}
	switch item.Type {
	case "agent_message":
		d.answer = item.Text
		r.add(jobs.Message, jobs.MessageData{Role: "assistant", Text: item.Text, Message: item.ID})
		return
	case "reasoning":
		r.add(jobs.Thought, jobs.MessageData{Role: "assistant", Text: item.Text, Message: item.ID})
		return
	case "todo_list":
		r.add(jobs.PlanUpdated, planData{Call: item.ID, Items: item.Items})
		return
	case "error":
		r.add(jobs.Notice, noticeData{Type: "error", Text: item.Message})
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
		r.add(jobs.ToolStarted, tool)
	case "updated":
		r.add(jobs.ToolOutput, tool)
	default:
		tool.OK = &ok
		r.add(jobs.ToolEnded, tool)
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
		r.add(jobs.FileChanged, fileData{Path: c.Path, Change: change, Call: item.ID})
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

// codexReason sorts a failure by its text: this program gives no code.
func codexReason(message string) jobs.Reason {
	switch status := codexStatus(message); {
	case status == 401 || status == 403 || strings.HasPrefix(message, "Missing environment variable"):
		return jobs.Unauthorized
	case status == 402 || strings.HasPrefix(message, "Quota exceeded"):
		return jobs.Billing
	case status == 429:
		return jobs.RateLimited
	case strings.Contains(message, "model does not exist"):
		return jobs.ModelNotFound
	case status >= 500, strings.Contains(message, "Connection failed"), strings.Contains(message, "stream disconnected"),
		strings.Contains(message, "experiencing high demand"), message == "":
		return jobs.ModelUnavailable
	}
	return jobs.AgentFailed
}

// Total implements [Decoder].
func (d *codexDecoder) Total() Total { return d.total }

// Exit implements [Decoder].
func (d *codexDecoder) Exit(code int, signal string) (jobs.Event, jobs.Ended) {
	class, end := d.verdict(code, signal)
	return exited("codex", d.turn, jobs.ExitData{Code: code, Signal: signal, Class: class, OpenTurn: d.open}), end
}

func (d *codexDecoder) verdict(code int, signal string) (string, jobs.Ended) {
	how := fmt.Sprintf("ended with status %d", code)
	if signal != "" {
		how = "was killed by " + signal
	}
	switch {
	case d.open && d.retried != "":
		return "died", ended(d.retried, fmt.Sprintf("codex %s while it retried the model API", how))
	case d.open:
		return "died", ended(jobs.AgentCrashed, d.words.after("codex "+how+" within a turn"))
	case d.last != nil && d.last.Status == "ok":
		return "ok", jobs.Ended{Outcome: jobs.Success}
	case d.last != nil:
		message := firstText(append(d.last.Errors, "the turn failed")...)
		return "error", ended(codexReason(message), message)
	case signal != "":
		return "died", ended(jobs.AgentCrashed, d.words.after("codex "+how+" before its turn"))
	case code == 126 || code == 127:
		return "no_turn", missing("codex", code, &d.words)
	}
	return "no_turn", ended(jobs.AgentProtocol, d.words.after("codex "+how+" without a turn"))
}
