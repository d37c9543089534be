package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/coder/acp-go-sdk"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// Line implements [agent.Decoder].
func (d *decoder) Line(line agent.Line) agent.Read {
	r := d.Decode(line, func(object json.RawMessage, r *agent.Read) event.AgentRaw {
		var m jsonrpc.Message
		_ = json.Unmarshal(object, &m) // fields of an unexpected type stay zero
		var p agentParams
		_ = json.Unmarshal(m.Params, &p) // as above
		if d.sent != "" && !d.begun && !d.forgets(m) {
			d.startTurn(r)
		}
		switch {
		case m.Method == sdk.ClientMethodSessionUpdate && m.ID == nil:
			d.readUpdate(&p.Update, r)
		case m.Method != "" && m.ID != nil:
			d.readRequest(m, &p, r)
		case m.Method == "":
			d.readAnswer(m, r)
		}
		return event.AgentRaw{Type: m.Method, Subtype: p.Update.Type}
	})
	r.State = d.state()
	return r
}

// startTurn reports that the turn of the prompt that was sent has begun.
func (d *decoder) startTurn(r *agent.Read) {
	d.begun, d.result = true, ""
	d.Begin(r)
	r.Add(event.InputState{Input: d.sent, State: "taken"})
	if d.unseen > 0 {
		r.Add(event.Notice{Text: fmt.Sprintf("agent %s takes no images any more, and was told message %s without its %d", d.Name, d.sent, d.unseen)})
		d.unseen = 0
	}
}

func (d *decoder) state() agent.State {
	switch {
	case d.dead:
		return agent.Over
	case d.Last == nil || d.sent != "" || len(d.queue) > 0:
		return agent.Working
	}
	return agent.Idle
}

// Exit implements [agent.Decoder].
func (d *decoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	if !d.dead {
		d.Unread = len(d.queue)
	}
	if d.sent != "" && !d.begun {
		d.Unread++
	}
	return d.Turns.Exit(code, signal)
}

// The capabilities are what the agent declares that it can do.
type capabilities struct {
	Load   bool `json:"loadSession"`
	Prompt struct {
		Image bool `json:"image"`
	} `json:"promptCapabilities"`
	Session struct {
		Resume json.RawMessage `json:"resume"`
	} `json:"sessionCapabilities"`
}

// resumes reports whether another process can continue a session.
func (a capabilities) resumes() bool { return a.Load || a.Session.Resume != nil }

// An agentAnswer is the result of any answer.
type agentAnswer struct {
	Version int          `json:"protocolVersion"`
	Can     capabilities `json:"agentCapabilities"`
	Session string       `json:"sessionId"`
	Agent   struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	} `json:"agentInfo"`
	Models struct {
		Current string `json:"currentModelId"`
	} `json:"models"`
	Modes struct {
		Current string `json:"currentModeId"`
	} `json:"modes"`
	Options []configOption `json:"configOptions"`
	Stop    string         `json:"stopReason"`
	Usage   tokens         `json:"usage"`
	Meta    struct {
		Quota struct { // of Gemini CLI
			Tokens struct {
				Input  int64 `json:"input_tokens"`
				Output int64 `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

// readAnswer handles the answer to one of our requests.
func (d *decoder) readAnswer(m jsonrpc.Message, r *agent.Read) {
	call, ours := d.rpc.Answered(m)
	if !ours {
		return
	}
	var got agentAnswer
	_ = json.Unmarshal(m.Result, &got) // fields of an unexpected type stay zero
	switch call.Method {
	case sdk.AgentMethodInitialize:
		d.readHello(m, got, r)
		if !d.dead {
			r.Add(call.Result(m))
		}
	case sdk.AgentMethodAuthenticate:
		if m.Error != nil {
			d.fail(m, jobs.Unauthorized, "it could not authenticate by "+d.launch.Auth, r)
			return
		}
		r.Add(call.Result(m))
		r.Reply = append(r.Reply, d.beginSession())
	case sdk.AgentMethodSessionNew, sdk.AgentMethodSessionResume, sdk.AgentMethodSessionLoad:
		if call.Method == sdk.AgentMethodSessionResume && m.Error != nil && m.Error.Code == methodUnknown && d.can.Load {
			d.can.Session.Resume = nil // which it does not know, whatever it has said
			r.Reply = append(r.Reply, d.beginSession())
			return
		}
		d.readSession(m, got, r)
	case sdk.AgentMethodSessionPrompt:
		if d.begun {
			d.readEnd(m, got, r)
		} else {
			d.fail(m, jobs.AgentProtocol, "it does not know the session that it has loaded", r)
		}
	case echoMethod:
		d.readEcho(r)
	default:
		d.offers(got.Options)
		switch {
		case call.Input != "":
			d.readLater(m, call.Input, r)
		case len(d.first) > 0 && m.Error != nil:
			why, what := refusal(d.first[0], m)
			d.fail(m, why, what, r)
			return
		case len(d.first) > 0:
			d.first = d.first[1:]
			d.begin(r)
		}
		r.Add(call.Result(m))
	}
	r.Reply = append(r.Reply, d.next()...)
}

func (d *decoder) readHello(m jsonrpc.Message, got agentAnswer, r *agent.Read) {
	d.can, d.about = got.Can, strings.TrimSpace(got.Agent.Name+" "+got.Agent.Version)
	switch {
	case m.Error != nil:
		d.fail(m, jobs.AgentProtocol, "it could not begin", r)
	case got.Version != sdk.ProtocolVersionNumber:
		d.fail(m, jobs.AgentProtocol, "it speaks version "+strconv.Itoa(got.Version)+" of the protocol, and not "+strconv.Itoa(sdk.ProtocolVersionNumber), r)
	case d.launch.Resume != "" && !d.can.resumes():
		d.fail(m, jobs.AgentProtocol, "it cannot go on with an earlier session: it says neither loadSession nor resume", r)
	case d.launch.Auth != "":
		r.Reply = append(r.Reply, d.rpc.Request(sdk.AgentMethodAuthenticate, sdk.AuthenticateRequest{MethodId: d.launch.Auth}, ""))
	default:
		r.Reply = append(r.Reply, d.beginSession())
	}
}

func (d *decoder) readSession(m jsonrpc.Message, got agentAnswer, r *agent.Read) {
	if d.session = sdk.SessionId(got.Session); d.session == "" {
		d.session = sdk.SessionId(d.launch.Resume) // an answer to resume or load may omit it
	}
	if m.Error != nil || d.session == "" {
		d.session = ""
		why := jobs.AgentProtocol
		if m.Error != nil && m.Error.Code == authRequired {
			why = jobs.Unauthorized
		}
		d.fail(m, why, "it opened no session", r)
		return
	}
	current := d.offers(got.Options)
	model, mode := cmp.Or(current["model"], got.Models.Current), cmp.Or(current["mode"], got.Modes.Current)
	if d.can.resumes() {
		d.Sum.Session = string(d.session)
	}
	if d.Sum.Model == "" {
		d.Sum.Model = model
	}
	r.Add(event.SessionStarted{Session: string(d.session), Model: model, Cwd: d.launch.Cwd, Mode: mode, Version: d.about, CanAsk: true})
	if mode := d.launch.Mode; mode != "" {
		r.Reply = append(r.Reply, d.set("mode", mode, "launch"))
	}
	d.begin(r)
	d.endLoad(r)
}

const (
	// authRequired is the protocol's code for an agent that has no key.
	authRequired = -32000
	// methodUnknown is the code of JSON-RPC for a request that is not known.
	methodUnknown = -32601
)

// begin sets the agent to the next of what it is set to before its first prompt.
func (d *decoder) begin(r *agent.Read) {
	switch {
	case len(d.first) == 0:
	case d.first[0].what == "effort" && d.options["effort"] == "":
		why, what := refusal(d.first[0], jsonrpc.Message{})
		d.fail(jsonrpc.Message{}, why, what, r)
	default:
		r.Reply = append(r.Reply, d.set(d.first[0].what, d.first[0].value, ""))
	}
}

// fail records that the agent could not begin.
func (d *decoder) fail(m jsonrpc.Message, why jobs.Reason, what string, r *agent.Read) {
	message := d.Name + " could not begin: " + what
	if m.Error != nil {
		message += ": " + errorText(m.Error)
	}
	d.dead, d.sent = true, ""
	d.End(event.TurnEnded{Status: "error", Reason: "error", Errors: []string{message}}, why, r)
}

// errorText is the message of an error, with the details that agents put beside it.
func errorText(e *jsonrpc.Error) string {
	var details struct {
		Details string `json:"details"`
	}
	if json.Unmarshal(e.Data, &details) == nil && details.Details != "" {
		return wording.Short(e.Message+": "+details.Details, 1000)
	}
	return wording.Short(e.Message, 1000)
}

// readEnd closes the turn.
func (d *decoder) readEnd(m jsonrpc.Message, got agentAnswer, r *agent.Read) {
	d.flush(r)
	used := cmp.Or(got.Usage.ofTurn(), jobs.Usage{Input: got.Meta.Quota.Tokens.Input, Output: got.Meta.Quota.Tokens.Output}, d.calls)
	d.calls = jobs.Usage{}
	d.Sum.Usage = d.Sum.Usage.Add(used)
	turn := event.TurnEnded{
		Status: "ok", Reason: got.Stop, Result: d.result, Usage: used, UsageScope: "turn", CostUSD: jobs.AddUSD(d.earlier, d.Sum.CostUSD), CostScope: "session",
	}
	var why jobs.Reason
	switch {
	case m.Error != nil:
		text := errorText(m.Error)
		turn.Status, turn.Reason, turn.Errors, turn.HTTP = "error", "error", []string{text}, decode.StatusIn(text)
		if m.Error.Code >= 400 && m.Error.Code < 600 { // Gemini CLI has it there
			turn.HTTP = m.Error.Code
		}
		if why = decode.HTTPReason(turn.HTTP); m.Error.Code == authRequired {
			why = jobs.Unauthorized
		}
	case got.Stop == string(sdk.StopReasonCancelled):
		turn.Status, why = "interrupted", jobs.AgentFailed
	case got.Stop == string(sdk.StopReasonMaxTurnRequests), got.Stop == string(sdk.StopReasonMaxTokens):
		turn.Status, turn.Errors, why = "limit", []string{"the turn was cut off: " + got.Stop}, jobs.TurnLimit
	case got.Stop != string(sdk.StopReasonEndTurn):
		turn.Status, turn.Errors, why = "error", []string{"the turn ended with " + wording.First(got.Stop, "no reason")}, jobs.AgentFailed
	}
	d.sent = ""
	d.replay.on = d.replay.on && d.with.ReplayEnd != ""
	d.End(turn, why, r)
	for _, id := range slices.Concat(d.dropped, slices.Sorted(maps.Keys(d.asks))) {
		r.Add(event.AskClosed{Ask: id, How: "withdrawn"})
	}
	clear(d.asks)
	clear(d.tools)
	d.dropped = nil
}
