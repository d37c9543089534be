package gemini

import (
	"cmp"
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

// outputLine is any line of gemini --output-format stream-json.
type outputLine struct {
	Type    string          `json:"type"`
	Session string          `json:"session_id"`
	Model   string          `json:"model"`
	Role    string          `json:"role"`
	Content string          `json:"content"`
	Tool    string          `json:"tool_name"`
	ID      string          `json:"tool_id"`
	Input   json.RawMessage `json:"parameters"`
	Status  string          `json:"status"`
	Output  string          `json:"output"`
	Message string          `json:"message"`
	Error   struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats struct {
		Total  int64 `json:"total_tokens"`
		All    int64 `json:"input_tokens"` // including those that were read from the cache
		Input  int64 `json:"input"`
		Cached int64 `json:"cached"`
	} `json:"stats"`
}

// decoder decodes one run of Gemini CLI: one turn. The program prints on stderr
// why the model API refused a call, and shows it in the exit status, but not always in
// the line that ends the turn.
type decoder struct {
	decode.Turns
	prompt string // its id
	tools  map[string]tool
	text   strings.Builder // of the message that is arriving
	answer string          // the last message: the turn's result
	unsure bool            // the end of the turn does not say why it failed
	http   int             // the last status of the model API
	noSuch bool            // the API does not know the model
}

type tool struct{ name, kind, path string }

// Decoder implements [agent.Adapter].
func (Adapter) Decoder(l agent.Launch) agent.Decoder {
	if l.Job.Agent.Interactive {
		return decoderOf(l)
	}
	return &decoder{
		Turns:  decode.Turns{Name: "gemini", Sum: agent.Total{Session: l.Resume, Model: l.Job.Agent.Model}},
		prompt: l.PromptID(), tools: map[string]tool{},
	}
}

// Line implements [agent.Decoder].
func (d *decoder) Line(line agent.Line) agent.Read {
	r := d.Decode(line, func(object json.RawMessage, r *agent.Read) event.AgentRaw {
		var out outputLine
		_ = json.Unmarshal(object, &out) // fields of an unexpected type stay zero
		d.read(out, r)
		return event.AgentRaw{Type: out.Type, Subtype: out.Role}
	})
	if line.Stream == agent.Stderr {
		d.readStderr(string(line.Bytes), &r)
	}
	return r
}

func (d *decoder) read(out outputLine, r *agent.Read) {
	switch {
	case out.Type == "init":
		d.Sum.Session, d.Sum.Model = out.Session, out.Model
		r.Add(event.SessionStarted{Session: out.Session, Model: out.Model})
		d.Begin(r)
	case out.Type == "message" && out.Role == "user":
		r.Add(event.InputState{Input: d.prompt, State: "taken"})
	case out.Type == "message":
		d.Retried = ""
		d.text.WriteString(out.Content)
		r.Add(event.MessageDelta{Role: "assistant", Text: out.Content})
	case out.Type == "tool_use":
		d.startTool(out, r)
	case out.Type == "tool_result":
		d.endTool(out, r)
	case out.Type == "error":
		r.Add(event.Notice{Type: "error", Text: out.Message})
	case out.Type == "result":
		d.finish(out, r)
	}
}

func (d *decoder) startTool(out outputLine, r *agent.Read) {
	d.Retried = ""
	d.flush(r)
	t := tool{name: out.Tool, kind: wording.First(toolKinds[out.Tool], "other")}
	var input struct {
		Path  string `json:"file_path"`
		About string `json:"description"`
	}
	_ = json.Unmarshal(out.Input, &input) // the program's own explanation, if any
	t.path = input.Path
	decode.Remember(d.tools, out.ID, t)
	r.Add(event.ToolStarted{Call: out.ID, Name: t.name, Kind: t.kind, Title: wording.Short(input.About, 120), Input: out.Input})
}

func (d *decoder) endTool(out outputLine, r *agent.Read) {
	t := d.tools[out.ID]
	delete(d.tools, out.ID)
	ok := out.Status == "success"
	r.Add(event.ToolEnded{Call: out.ID, Name: t.name, Kind: t.kind, OK: &ok, Output: cmp.Or(out.Output, out.Error.Message)})
	if ok && t.kind == "edit" && t.path != "" {
		r.Add(event.FileChanged{Path: t.path, Change: "update", Call: out.ID})
	}
}

var toolKinds = map[string]string{
	"run_shell_command": "execute", "write_file": "edit", "replace": "edit", "read_file": "read", "read_many_files": "read",
	"list_directory": "read", "glob": "search", "grep_search": "search", "google_web_search": "search", "web_fetch": "fetch",
	"invoke_agent": "agent", "write_todos": "plan",
}

// flush reports a message once it is complete.
func (d *decoder) flush(r *agent.Read) {
	if d.text.Len() == 0 {
		return
	}
	d.answer = d.text.String()
	d.text.Reset()
	r.Add(event.Message{Role: "assistant", Text: d.answer})
}

func (d *decoder) finish(out outputLine, r *agent.Read) {
	d.flush(r)
	s := out.Stats
	used := jobs.Usage{Input: s.Input, Output: max(0, s.Total-s.All), CacheRead: s.Cached}
	d.Sum.Usage = d.Sum.Usage.Add(used)
	turn := event.TurnEnded{Status: "ok", Reason: "completed", Result: d.answer, Usage: used, UsageScope: "turn"}
	var why jobs.Reason
	if out.Status != "success" {
		e := parseError(out.Error.Message)
		turn.Status, turn.Reason, turn.Errors, turn.HTTP = "error", out.Error.Type, []string{e.message}, e.http
		switch {
		case out.Error.Type == "FatalTurnLimitedError":
			turn.Status, why = "limit", jobs.TurnLimit
		case e.badKey || strings.Contains(out.Error.Type, "Authentication"):
			why = jobs.Unauthorized
		case e.api && e.http == 0:
			d.unsure, why = true, jobs.ModelUnavailable
		default:
			why = decode.HTTPReason(e.http)
		}
	}
	d.End(turn, why, r)
}

// An apiFailure is the program's report of a call that failed.
type apiFailure struct {
	message string
	api     bool // it was a call of the model API
	http    int  // zero: not reported
	badKey  bool // Google reports it with status 400
}

// parseError decodes "[API Error: …]", which contains the provider's answer, or a
// message alone.
func parseError(text string) apiFailure {
	inner, api := strings.CutPrefix(text, "[API Error: ")
	f := apiFailure{message: text, api: api}
	if !api {
		return f
	}
	inner, _, _ = strings.Cut(inner, "]\n") // advice for people follows
	f.message = strings.TrimSuffix(inner, "]")
	var body struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Details []struct {
				Reason string `json:"reason"`
			} `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(f.message), &body) != nil || body.Error.Code == 0 {
		return f
	}
	f.http, f.message = body.Error.Code, wording.First(body.Error.Message, f.message)
	for _, detail := range body.Error.Details {
		f.badKey = f.badKey || detail.Reason == "API_KEY_INVALID"
	}
	f.badKey = f.badKey || strings.HasPrefix(f.message, "API key not valid") // its details are not always there
	return f
}

var (
	retryLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^Attempt (\d{1,3}) failed(?: with status (\d{3}))?\. Retrying`)
	})
	statusLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*(?:status|code): (\d{3}),?$`) })
)

// readStderr decodes what only stderr has: that a call is retried, and why the last one
// failed.
func (d *decoder) readStderr(line string, r *agent.Read) {
	if m := statusLine().FindStringSubmatch(line); m != nil {
		d.http, _ = strconv.Atoi(m[1]) // three digits
	}
	d.noSuch = d.noSuch || strings.HasPrefix(line, "Error when talking to Gemini API") && strings.Contains(line, " ModelNotFoundError: ")
	m := retryLine().FindStringSubmatch(line)
	if m == nil {
		return
	}
	attempt, _ := strconv.Atoi(m[1])
	status, _ := strconv.Atoi(m[2]) // zero: it was not reached
	d.http, d.Retried = status, jobs.ModelUnavailable
	if status != 0 {
		d.Retried = decode.HTTPReason(status)
	}
	e := event.Make(event.Retry{Attempt: attempt, Max: tries - 1, HTTP: status})
	e.Agent, e.Turn = d.Name, d.Turn
	r.Events = append(r.Events, e)
}

// Exit implements [agent.Decoder].
func (d *decoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	// The exit status is the status of the model API, too, as far as it fits.
	if status := code + 256; d.http == 0 && status >= 400 && status < 512 {
		d.http = status
	}
	switch {
	case d.unsure && d.noSuch:
		d.Why = jobs.ModelNotFound
	case d.unsure && d.http != 0:
		d.Why = decode.HTTPReason(d.http)
	}
	event, end := d.Turns.Exit(code, signal)
	if d.Turn == 0 && signal == "" && code == exitNoKey {
		end = jobs.Unauthorized.Ended(d.Stderr.After("gemini could not begin"))
	}
	return event, end
}

// exitNoKey is the exit status of a program that could not authenticate.
const exitNoKey = 41
