package agent

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// codexParams are the parameters of any message of the app server. Only the fields that
// are used have names.
type codexParams struct {
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
	Turn      codexTurn         `json:"turn"`
	Item      codexThing        `json:"item"`
	Error     codexError        `json:"error"`
	Retries   bool              `json:"willRetry"`
	Status    struct {
		Type  string   `json:"type"`
		Flags []string `json:"activeFlags"`
	} `json:"status"`
	Usage struct {
		Total codexUsage `json:"total"`
	} `json:"tokenUsage"`
}

type codexTurn struct {
	ID     string      `json:"id"`
	Status string      `json:"status"`
	Error  *codexError `json:"error"`
	// Millis is the duration in milliseconds.
	Millis float64 `json:"durationMs"`
}

type codexError struct {
	Message string          `json:"message"`
	Details string          `json:"additionalDetails"`
	Info    json.RawMessage `json:"codexErrorInfo"` // a string, or an object with one field
}

type codexUsage struct {
	Input      int64 `json:"inputTokens"`
	Cached     int64 `json:"cachedInputTokens"`
	CacheWrite int64 `json:"cacheWriteInputTokens"`
	Output     int64 `json:"outputTokens"`
}

// The input includes what was read from the cache.
func (u codexUsage) jobs() jobs.Usage {
	return jobs.Usage{Input: u.Input - u.Cached, Output: u.Output, CacheRead: u.Cached, CacheWrite: u.CacheWrite}
}

// Line implements [Decoder].
func (d *codexTalk) Line(line Line) Read {
	r := d.line(line, func(object json.RawMessage, r *Read) event.AgentRaw {
		var m rpcMessage
		_ = json.Unmarshal(object, &m) // fields of an unexpected type stay zero
		var p codexParams
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

func (d *codexTalk) state() State {
	switch {
	case d.dead:
		return Over
	case d.last == nil || d.open || len(d.sent)+len(d.queue) > 0:
		return Working
	}
	return Idle
}

// Exit implements [Decoder].
func (d *codexTalk) Exit(code int, signal string) (event.Event, jobs.Ended) {
	if !d.dead {
		d.unread = len(d.sent) + len(d.queue)
	}
	return d.turns.Exit(code, signal)
}

// readAnswer handles the answer to one of our requests.
func (d *codexTalk) readAnswer(m rpcMessage, r *Read) {
	call, ours := d.rpc.answered(m)
	if !ours {
		return
	}
	var got struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
		Turn    codexTurn `json:"turn"`
		Model   string    `json:"model"`
		Cwd     string    `json:"cwd"`
		Agent   string    `json:"userAgent"`
		Asks    any       `json:"approvalPolicy"`
		Sandbox struct {
			Type string `json:"type"`
		} `json:"sandbox"`
	}
	_ = json.Unmarshal(m.Result, &got) // fields of an unexpected type stay zero
	switch {
	case call.method == "initialize" && m.Error == nil:
		r.reply(call, m)
		r.Reply = append(r.Reply, d.notify("initialized", nil), d.begins())
	case call.method == "thread/start" || call.method == "thread/resume":
		if m.Error != nil || got.Thread.ID == "" {
			d.fail(m, r)
			return
		}
		d.thread, d.total.Session, d.total.Model = got.Thread.ID, got.Thread.ID, got.Model
		mode, _ := got.Asks.(string) // an object where it is not one string
		r.add(event.SessionStarted{Session: d.thread, Model: got.Model, Cwd: got.Cwd, Mode: mode, CanAsk: true})
		waiting := d.queue
		d.queue = nil
		for _, prompt := range waiting {
			r.Reply = append(r.Reply, d.say(prompt)...)
		}
	case call.method == "initialize":
		d.fail(m, r)
	case call.method == "turn/start":
		d.readAccepted(call.input, got.Turn.ID, m, r)
	default:
		r.reply(call, m)
	}
}

// readAccepted notes which turn a prompt belongs to.
func (d *codexTalk) readAccepted(input, turn string, m rpcMessage, r *Read) {
	_, waits := d.sent[input]
	switch {
	case m.Error != nil && d.last == nil && !d.open:
		d.fail(m, r) // the first one
		return
	case m.Error != nil || turn == d.now && !d.open:
		delete(d.sent, input)
		d.cut = d.cut && len(d.sent) > 0
	case waits:
		d.sent[input] = turn
	}
	r.reply(rpcCall{input: input}, m)
}

// fail records that the agent could not begin.
func (d *codexTalk) fail(m rpcMessage, r *Read) {
	message := "codex could not begin"
	if m.Error != nil {
		message = firstText(m.Error.Message, message)
	}
	d.dead = true
	why := codexReason(message)
	if why == jobs.AgentFailed {
		why = jobs.AgentProtocol
	}
	d.end(event.TurnEnded{Status: "error", Reason: "error", Errors: []string{message}}, why, r)
}

func (d *codexTalk) read(method string, p *codexParams, r *Read) {
	switch method {
	case "turn/started", "turn/completed":
		d.readTurn(method, p, r)
	case "item/started", "item/completed":
		d.readThing(method, p, r)
	case "item/agentMessage/delta":
		r.add(event.MessageDelta{Role: "assistant", Text: p.Delta, Message: p.ItemID, Parent: d.parent(p)})
	case "item/reasoning/textDelta", "item/reasoning/summaryTextDelta":
		r.add(event.ThoughtDelta{Role: "assistant", Text: p.Delta, Message: p.ItemID, Parent: d.parent(p)})
	case "item/commandExecution/outputDelta":
		r.add(event.ToolOutput{Call: p.ItemID, Name: "command_execution", Kind: "execute", Output: p.Delta, Parent: d.parent(p)})
	case "thread/tokenUsage/updated":
		d.readUsage(p, r)
	case "thread/status/changed":
		state := map[string]string{"active": "running", "idle": "idle"}[p.Status.Type]
		if len(p.Status.Flags) > 0 {
			state = "waiting"
		}
		if state != "" && d.parent(p) == "" {
			r.add(event.StateChanged{State: state})
		}
	case "turn/plan/updated":
		r.add(event.PlanUpdated{Items: p.Plan})
	case "account/rateLimits/updated":
		r.add(event.Limit{RawMessage: p.Limits})
	case "error":
		d.readError(p, r)
	case "warning", "configWarning", "deprecationNotice", "guardianWarning":
		r.add(event.Notice{Type: method, Text: firstText(p.Message, p.Summary)})
	case "serverRequest/resolved":
		if id, ok := (rpcMessage{ID: p.Request}).answerable(); ok && d.asks[id].id != nil {
			delete(d.asks, id)
			r.add(event.AskClosed{Ask: id, How: "withdrawn"})
		}
	}
}

// parent is the thread of a subagent; empty if the agent itself speaks.
func (d *codexTalk) parent(p *codexParams) string {
	if d.thread == "" || p.Thread == d.thread {
		return ""
	}
	return p.Thread
}

func (d *codexTalk) readTurn(method string, p *codexParams, r *Read) {
	switch {
	case d.parent(p) != "":
	case method == "turn/started":
		d.now, d.result, d.before = p.Turn.ID, "", d.all()
		d.begin(r)
		if d.cut {
			r.Reply = append(r.Reply, d.Interrupt()...)
		}
	case d.open && p.Turn.ID == d.now:
		maps.DeleteFunc(d.sent, func(_, turn string) bool { return turn == d.now })
		d.readEnd(p.Turn, r)
	}
}

// readEnd closes the turn. The questions asked in it are closed, too.
func (d *codexTalk) readEnd(t codexTurn, r *Read) {
	turn := event.TurnEnded{Status: "ok", Reason: "completed", Result: d.result, Usage: less(d.all(), d.before), UsageScope: "turn", Seconds: max(0, t.Millis/1000)}
	var why jobs.Reason
	switch t.Status {
	case "interrupted":
		turn.Status, turn.Reason, why = "interrupted", "interrupted", jobs.AgentFailed
		// Otherwise the command that the turn waited for would continue.
		r.Reply = append(r.Reply, d.request("thread/backgroundTerminals/clean", map[string]any{"threadId": d.thread}, ""))
	case "failed":
		e := codexError{Message: "the turn failed"}
		if t.Error != nil {
			e = *t.Error
		}
		word, http := e.info()
		turn.Status, turn.Reason, turn.Errors, turn.HTTP = "error", firstText(word, "error"), []string{e.Message}, http
		why = e.reason()
	}
	d.cut = false
	d.end(turn, why, r)
	for _, id := range slices.Sorted(maps.Keys(d.asks)) {
		r.add(event.AskClosed{Ask: id, How: "withdrawn"})
	}
	clear(d.asks)
}

func (d *codexTalk) readUsage(p *codexParams, r *Read) {
	remember(d.used, p.Thread, p.Usage.Total.jobs())
	if d.turn == 0 {
		d.earlier = d.all() // the program repeats earlier usage when it resumes a thread
	}
	d.total.Usage = less(d.all(), d.earlier)
	r.add(event.Usage{Scope: "session", Tokens: event.Tokens{Usage: new(p.Usage.Total.jobs())}})
}

// all is the usage of all its threads.
func (d *codexTalk) all() (sum jobs.Usage) {
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

func (d *codexTalk) readError(p *codexParams, r *Read) {
	word, http := p.Error.info()
	if !p.Retries {
		r.add(event.Notice{Type: "error", Text: p.Error.Message})
		return
	}
	d.retried = p.Error.reason()
	var attempt, limit int
	if again := codexAgain.FindStringSubmatch(p.Error.Message); again != nil {
		attempt, _ = strconv.Atoi(again[1]) // zero where it has no number
		limit, _ = strconv.Atoi(again[2])   // as above
	}
	r.add(event.Retry{
		Attempt: attempt, Max: limit, HTTP: http, Class: firstText(word, string(d.retried)), Hopeless: jobs.Reasons[d.retried].Hopeless(),
	})
}

// info is the program's name of an error, and the status of the model API.
func (e codexError) info() (word string, http int) {
	if json.Unmarshal(e.Info, &word) == nil {
		return word, codexStatus(e.Message + " " + e.Details)
	}
	var object map[string]struct {
		Status int `json:"httpStatusCode"`
	}
	_ = json.Unmarshal(e.Info, &object) // an unknown object has no name
	for name, detail := range object {
		word, http = name, detail.Status
	}
	if http == 0 {
		http = codexStatus(e.Message + " " + e.Details)
	}
	return word, http
}

// reason classifies an error.
func (e codexError) reason() jobs.Reason {
	word, http := e.info()
	if why := httpReason(http); why != jobs.AgentFailed {
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
	return codexReason(e.Message)
}
