package codex

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// serverParams are the parameters of any message of the app server. Only the fields that
// are used have names.
type serverParams struct {
	Thread  string          `json:"threadId"`
	TurnID  string          `json:"turnId"`
	ItemID  string          `json:"itemId"`
	Delta   string          `json:"delta"`
	Message string          `json:"message"`
	Summary string          `json:"summary"`
	Request json.RawMessage `json:"requestId"`
	Plan    json.RawMessage `json:"plan"`
	Limits  json.RawMessage `json:"rateLimits"`
	// Decisions are the answers to a request for permission that the program offers:
	// strings, and objects of one field whose name is the decision.
	Decisions []json.RawMessage `json:"availableDecisions"`
	Turn      serverTurn        `json:"turn"`
	Item      serverItem        `json:"item"`
	Error     serverError       `json:"error"`
	Retries   bool              `json:"willRetry"`
	Status    struct {
		Type  string   `json:"type"`
		Flags []string `json:"activeFlags"`
	} `json:"status"`
	Usage struct {
		Total  tokenUsage `json:"total"`
		Last   tokenUsage `json:"last"` // of the last call
		Window *int64     `json:"modelContextWindow"`
	} `json:"tokenUsage"`
}

type serverTurn struct {
	ID     string       `json:"id"`
	Status string       `json:"status"`
	Error  *serverError `json:"error"`
	// Millis is the duration in milliseconds.
	Millis float64 `json:"durationMs"`
}

type serverError struct {
	Message string          `json:"message"`
	Details string          `json:"additionalDetails"`
	Info    json.RawMessage `json:"codexErrorInfo"` // a string, or an object with one field
}

type tokenUsage struct {
	Input      int64 `json:"inputTokens"`
	Cached     int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
	Total      int64 `json:"totalTokens"`
}

// The input includes what was read from the cache.
func (u tokenUsage) jobs() jobs.Usage {
	return jobs.Usage{Input: u.Input - u.Cached, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite}
}

// Line implements [agent.Decoder].
func (d *appServer) Line(line agent.Line) agent.Read {
	r := d.Decode(line, func(object json.RawMessage, r *agent.Read) event.AgentRaw {
		var m jsonrpc.Message
		_ = json.Unmarshal(object, &m) // fields of an unexpected type stay zero
		var p serverParams
		_ = json.Unmarshal(m.Params, &p) // as above
		switch {
		case m.Method != "" && m.ID != nil:
			d.readRequest(m, &p, r)
		case m.Method != "":
			d.read(m.Method, &p, r)
		default:
			d.readAnswer(m, r)
		}
		return event.AgentRaw{Type: m.Method, Subtype: p.Item.Type}
	})
	r.State = d.state()
	return r
}

func (d *appServer) state() agent.State {
	switch {
	case d.dead:
		return agent.Over
	case d.Last == nil || d.Open || len(d.sent)+len(d.queue) > 0 || d.compact != noCompaction:
		return agent.Working
	}
	return agent.Idle
}

// Exit implements [agent.Decoder].
func (d *appServer) Exit(code int, signal string) (event.Event, jobs.Ended) {
	if !d.dead {
		d.Unread = len(d.sent) + len(d.queue)
	}
	return d.Turns.Exit(code, signal)
}

// readAnswer handles the answer to one of our requests.
func (d *appServer) readAnswer(m jsonrpc.Message, r *agent.Read) {
	call, ours := d.rpc.Answered(m)
	if !ours {
		return
	}
	var got struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
		Turn    serverTurn `json:"turn"`
		Model   string     `json:"model"`
		Cwd     string     `json:"cwd"`
		Agent   string     `json:"userAgent"`
		Asks    any        `json:"approvalPolicy"`
		Sandbox struct {
			Type string `json:"type"`
		} `json:"sandbox"`
	}
	_ = json.Unmarshal(m.Result, &got) // fields of an unexpected type stay zero
	switch {
	case call.Method == "initialize" && m.Error == nil:
		r.Add(call.Result(m))
		r.Reply = append(r.Reply, d.rpc.Notify("initialized", nil), d.beginThread())
	case call.Method == "thread/start" || call.Method == "thread/resume":
		if m.Error != nil || got.Thread.ID == "" {
			d.fail(m, r)
			return
		}
		d.thread, d.Sum.Session, d.Sum.Model = got.Thread.ID, got.Thread.ID, got.Model
		mode, _ := got.Asks.(string) // an object where it is not one string
		r.Add(event.SessionStarted{Session: d.thread, Model: got.Model, Cwd: got.Cwd, Mode: mode, CanAsk: true})
		d.set = control.Settings{Model: got.Model, Effort: d.launch.Job.Agent.Effort}
		if d.launch.Mode == planMode {
			lines, _ := d.Set("", control.Settings{Mode: planMode}) // which cannot be refused
			r.Reply = append(r.Reply, lines...)
		}
		d.sayQueued(r)
	case call.Method == "initialize":
		d.fail(m, r)
	case call.Method == "turn/start":
		d.readAccepted(call.Input, got.Turn.ID, m, r)
	case call.Method == "thread/compact/start" && m.Error != nil:
		r.Add(call.Result(m))
		d.compact = noCompaction
		d.sayQueued(r)
	default:
		r.Add(call.Result(m))
	}
}

// readAccepted notes which turn a prompt belongs to.
func (d *appServer) readAccepted(input, turn string, m jsonrpc.Message, r *agent.Read) {
	_, waits := d.sent[input]
	switch {
	case m.Error != nil && d.Last == nil && !d.Open:
		d.fail(m, r) // the first one
		return
	case m.Error != nil || turn == d.now && !d.Open:
		delete(d.sent, input)
		d.cut = d.cut && len(d.sent) > 0
	case waits:
		d.sent[input] = turn
	}
	r.Add(jsonrpc.Call{Input: input}.Result(m))
}

// fail records that the agent could not begin.
func (d *appServer) fail(m jsonrpc.Message, r *agent.Read) {
	message := "codex could not begin"
	if m.Error != nil {
		message = wording.First(m.Error.Message, message)
	}
	d.dead = true
	why := reasonFor(message)
	if why == jobs.AgentFailed {
		why = jobs.AgentProtocol
	}
	d.End(event.TurnEnded{Status: "error", Reason: "error", Errors: []string{message}}, why, r)
}

func (d *appServer) read(method string, p *serverParams, r *agent.Read) {
	switch method {
	case "turn/started", "turn/completed":
		d.readTurn(method, p, r)
	case "item/started", "item/completed":
		d.readServerItem(method, p, r)
	case "item/agentMessage/delta":
		r.Add(event.MessageDelta{Role: "assistant", Text: p.Delta, Message: p.ItemID, Parent: d.parent(p)})
	case "item/reasoning/textDelta", "item/reasoning/summaryTextDelta":
		r.Add(event.ThoughtDelta{Role: "assistant", Text: p.Delta, Message: p.ItemID, Parent: d.parent(p)})
	case "item/commandExecution/outputDelta":
		r.Add(event.ToolOutput{Call: p.ItemID, Name: "command_execution", Kind: "execute", Output: p.Delta, Parent: d.parent(p)})
	case "thread/tokenUsage/updated":
		d.readUsage(p, r)
	case "thread/status/changed":
		state := map[string]string{"active": "running", "idle": "idle"}[p.Status.Type]
		if len(p.Status.Flags) > 0 {
			state = "waiting"
		}
		if state != "" && d.parent(p) == "" {
			r.Add(event.StateChanged{State: state})
		}
	case "turn/plan/updated":
		r.Add(event.PlanUpdated{Items: p.Plan})
	case "account/rateLimits/updated":
		r.Add(event.Limit{RawMessage: p.Limits})
	case "error":
		d.readError(p, r)
	case "warning", "configWarning", "deprecationNotice", "guardianWarning":
		r.Add(event.Notice{Type: method, Text: wording.First(p.Message, p.Summary)})
	case "serverRequest/resolved":
		if id, ok := (jsonrpc.Message{ID: p.Request}).AnswerID(); ok && d.asks[id].ID != nil {
			delete(d.asks, id)
			r.Add(event.AskClosed{Ask: id, How: "withdrawn"})
		}
	}
}

// parent is the thread of a subagent; empty if the agent itself speaks.
func (d *appServer) parent(p *serverParams) string {
	if d.thread == "" || p.Thread == d.thread {
		return ""
	}
	return p.Thread
}

func (d *appServer) readTurn(method string, p *serverParams, r *agent.Read) {
	switch {
	case d.parent(p) != "":
	case method == "turn/started":
		d.now, d.result, d.before = p.Turn.ID, "", d.all()
		d.Begin(r)
		if d.compact == compactionAsked {
			d.compact = compactionBegun
		}
		if d.cut {
			r.Reply = append(r.Reply, d.Interrupt()...)
		}
	case d.Open && p.Turn.ID == d.now:
		maps.DeleteFunc(d.sent, func(_, turn string) bool { return turn == d.now })
		d.readEnd(p.Turn, r)
	}
}

// readEnd closes the turn. The questions asked in it are closed, too.
func (d *appServer) readEnd(t serverTurn, r *agent.Read) {
	turn := event.TurnEnded{Status: "ok", Reason: "completed", Result: d.result, Usage: less(d.all(), d.before), UsageScope: "turn", Seconds: max(0, t.Millis/1000)}
	var why jobs.Reason
	switch t.Status {
	case "interrupted":
		turn.Status, turn.Reason, why = "interrupted", "interrupted", jobs.AgentFailed
		// Otherwise the command that the turn waited for would continue.
		r.Reply = append(r.Reply, d.rpc.Request("thread/backgroundTerminals/clean", map[string]any{"threadId": d.thread}, ""))
	case "failed":
		e := serverError{Message: "the turn failed"}
		if t.Error != nil {
			e = *t.Error
		}
		word, http := e.info()
		turn.Status, turn.Reason, turn.Errors, turn.HTTP = "error", wording.First(word, "error"), []string{e.Message}, http
		why = e.reason()
	}
	d.cut = false
	d.End(turn, why, r)
	for _, id := range slices.Sorted(maps.Keys(d.asks)) {
		r.Add(event.AskClosed{Ask: id, How: "withdrawn"})
	}
	clear(d.asks)
	if d.compact == compactionBegun {
		d.compact = noCompaction
		d.sayQueued(r)
	}
}

func (d *appServer) readUsage(p *serverParams, r *agent.Read) {
	decode.Remember(d.used, p.Thread, p.Usage.Total.jobs())
	if d.Turn == 0 {
		d.earlier = d.all() // the program repeats earlier usage when it resumes a thread
	}
	d.Sum.Usage = less(d.all(), d.earlier)
	r.Add(event.Usage{Scope: "session", Tokens: event.Tokens{
		Usage: new(p.Usage.Total.jobs()), Context: &p.Usage.Last.Total, Window: p.Usage.Window,
	}})
}

// all is the usage of all its threads.
func (d *appServer) all() (sum jobs.Usage) {
	for _, u := range d.used {
		sum = sum.Add(u)
	}
	return sum
}

// less is the usage since an earlier count. It is never below zero, whatever the
// program reported.
func less(now, before jobs.Usage) jobs.Usage {
	return jobs.Usage{
		Input: max(0, now.Input-before.Input), Output: max(0, now.Output-before.Output),
		CacheRead: max(0, now.CacheRead-before.CacheRead), CacheWrite: max(0, now.CacheWrite-before.CacheWrite),
	}
}

func (d *appServer) readError(p *serverParams, r *agent.Read) {
	word, http := p.Error.info()
	if !p.Retries {
		r.Add(event.Notice{Type: "error", Text: p.Error.Message})
		return
	}
	d.Retried = p.Error.reason()
	var attempt, limit int
	if again := reconnecting().FindStringSubmatch(p.Error.Message); again != nil {
		attempt, _ = strconv.Atoi(again[1]) // zero where it has no number
		limit, _ = strconv.Atoi(again[2])   // as above
	}
	r.Add(event.Retry{
		Attempt: attempt, Max: limit, HTTP: http, Class: wording.First(word, string(d.Retried)), Hopeless: jobs.Reasons[d.Retried].Hopeless(),
	})
}

// info is the program's name of an error, and the status of the model API.
func (e serverError) info() (word string, http int) {
	if json.Unmarshal(e.Info, &word) == nil {
		return word, decode.StatusIn(e.Message + " " + e.Details)
	}
	var object map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	_ = json.Unmarshal(e.Info, &object) // an unknown object has no name
	for name, detail := range object {
		word, http = name, detail.Status
	}
	if http == 0 {
		http = decode.StatusIn(e.Message + " " + e.Details)
	}
	return word, http
}

// reason classifies an error.
func (e serverError) reason() jobs.Reason {
	word, http := e.info()
	if why := decode.HTTPReason(http); why != jobs.AgentFailed {
		return why
	}
	switch word {
	case "unauthorized":
		return jobs.Unauthorized
	case "usageLimitExceeded":
		return jobs.Billing
	case "rateLimitExceeded":
		return jobs.RateLimited
	case "modelNotFound":
		return jobs.ModelNotFound
	case "sessionBudgetExceeded":
		return jobs.BudgetExceeded
	case "serverOverloaded", "flexUnavailable", "internalServerError", "policyCapacityUnavailable", "httpConnectionFailed",
		"responseStreamConnectionFailed", "responseStreamDisconnected", "responseTooManyFailedAttempts":
		return jobs.ModelUnavailable
	}
	return reasonFor(e.Message)
}
