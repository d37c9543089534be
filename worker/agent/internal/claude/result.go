package claude

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// readResult closes a turn. Subtype "success" means nothing: a turn that an error of
// the model API ended has it, too.
func (d *decoder) readResult(out *outputLine, r *agent.Read) {
	if out.APIStatus != 0 {
		d.failure.http = out.APIStatus
	}
	turn := event.TurnEnded{
		Status: turnStatus(out), Result: out.Result, Errors: out.Errors, HTTP: out.APIStatus,
		Usage: out.Usage.jobs(), UsageScope: "turn", CostUSD: out.CostUSD, CostScope: "process", Denials: out.Denials,
		Seconds: max(0, out.DurationMS/1000),
	}
	turn.Reason = d.turnReason(out, turn.Status)
	if len(out.ModelUsage) > 0 {
		turn.ByModel = map[string]jobs.Usage{}
		for name, m := range out.ModelUsage {
			turn.ByModel[name] = m.jobs()
		}
	}
	if window := out.ModelUsage[d.call.Model].Window; window > 0 {
		r.Add(event.Usage{Scope: "session", Tokens: event.Tokens{Context: new(d.call.Usage.sum()), Window: &window}})
	}
	d.count(out)
	d.open, d.last, d.retried = false, &turn, ""
	d.total.Turns = d.turn
	clear(d.tools)
	r.Add(turn)
}

// turnReason is the reason for which a turn ended, as one word. Older versions always
// say "completed".
func (d *decoder) turnReason(out *outputLine, status string) string {
	switch {
	case out.Subtype == "error_max_turns":
		return "max_turns"
	case out.Subtype == "error_max_budget_usd":
		return "budget_exhausted"
	case status == "error" && d.failure.class != "":
		return d.failure.class
	case status == "ok" && out.Terminal == "":
		return "completed"
	}
	return out.Terminal
}

func turnStatus(out *outputLine) string {
	switch {
	case out.Subtype == "error_max_turns" || out.Subtype == "error_max_budget_usd":
		return "limit"
	case !out.IsError:
		return "ok"
	case strings.HasPrefix(out.Terminal, "aborted_"):
		return "interrupted"
	}
	return "error"
}

// count adds up the usage of the run. The total that the program reports starts at zero
// or continues that of an earlier process, depending on the version; the usage since
// the last result is exact where it is reported.
func (d *decoder) count(out *outputLine) {
	switch {
	case out.Since != nil:
		d.exact = true
		for _, m := range out.Since {
			d.total.Usage = d.total.Usage.Add(m.jobs())
			d.total.CostUSD = jobs.AddUSD(d.total.CostUSD, m.CostUSD)
		}
	case d.exact:
	case len(out.ModelUsage) > 0:
		d.total.Usage, d.total.CostUSD = jobs.Usage{}, out.CostUSD
		for _, m := range out.ModelUsage {
			d.total.Usage = d.total.Usage.Add(m.jobs())
		}
	default:
		d.total.Usage = d.total.Usage.Add(out.Usage.jobs())
	}
}

func (u usage) jobs() jobs.Usage {
	return jobs.Usage{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
}

// sum is all that the next call has before it.
func (u usage) sum() int64 { return u.Input + u.Output + u.CacheRead + u.CacheWrite }

func (m modelUsage) jobs() jobs.Usage {
	return jobs.Usage{Input: m.Input, Output: m.Output, CacheRead: m.CacheRead, CacheWrite: m.CacheWrite}
}

// Total implements [agent.Decoder].
func (d *decoder) Total() agent.Total { return d.total }

// An apiFailure is an error of the model API as the agent reported it.
type apiFailure struct {
	class string
	http  int
}

// reason maps a failure to one of the pool's reasons.
func (f apiFailure) reason() jobs.Reason {
	if f.http == 0 && f.class == "unknown" {
		return jobs.ModelUnavailable
	}
	return cmp.Or(jobs.APIFailure{Status: f.http, Kind: f.class}.Reason(), jobs.AgentFailed)
}

// Exit implements [agent.Decoder].
func (d *decoder) Exit(code int, signal string) (event.Event, jobs.Ended) {
	class, end := d.verdict(code, signal)
	return decode.Exited("claude", d.turn, event.RunExited{Code: code, Signal: signal, Class: class, OpenTurn: d.open}), end
}

func (d *decoder) verdict(code int, signal string) (string, jobs.Ended) {
	how := fmt.Sprintf("ended with status %d", code)
	if signal != "" {
		how = "was killed by " + signal
	}
	switch {
	case d.open && d.retried != "":
		// The program died, or was ended, while it retried the model API: the API is
		// the cause.
		return "died", d.retried.Ended(fmt.Sprintf("claude %s while it retried the model API", how))
	case d.open:
		return "died", jobs.AgentCrashed.Ended(d.stderr.After("claude " + how + " within a turn"))
	case d.last != nil:
		return d.lastTurn()
	case signal != "":
		return "died", jobs.AgentCrashed.Ended(d.stderr.After("claude " + how + " before its first turn"))
	case code == 126 || code == 127:
		return "no_turn", decode.Missing("claude", code, &d.stderr)
	}
	return "no_turn", jobs.AgentProtocol.Ended(d.stderr.After("claude " + how + " without a turn"))
}

// lastTurn is the verdict on a process that ended between turns: its exit status does
// not matter then.
func (d *decoder) lastTurn() (string, jobs.Ended) {
	turn := d.last
	message := wording.First(append([]string{turn.Result}, turn.Errors...)...)
	switch turn.Status {
	case "ok":
		return "ok", jobs.Ended{Outcome: jobs.Success}
	case "limit":
		why := jobs.TurnLimit
		if turn.Reason == "budget_exhausted" {
			why = jobs.BudgetExceeded
		}
		return "limit", why.Ended(message)
	case "interrupted":
		return "interrupted", jobs.AgentFailed.Ended("the turn was interrupted")
	}
	if d.turn == 0 {
		// The program reports a session that it cannot resume as a result without a
		// turn.
		return "error", jobs.AgentProtocol.Ended(wording.First(message, d.stderr.After("claude could not begin")))
	}
	return "error", d.failure.reason().Ended(wording.First(message, "the turn failed: "+turn.Reason))
}
