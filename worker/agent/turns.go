package agent

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
)

// turns is the common part of decoders whose agents report when a turn begins and how
// it ends: one turn in a process, or many.
//
//	(nothing) ──begin──▶ turn open ──end──▶ turn over ──begin──▶ …
type turns struct {
	name    string
	open    bool
	turn    int
	last    *event.TurnEnded // how the turn ended
	why     jobs.Reason      // of a turn that failed
	retried jobs.Reason      // why the model API is being retried
	total   Total
	words   lastError
	unread  int // prompts that the agent was sent and has not taken up at its end
}

// line adds the events of a line. Read makes events of a JSON object; for one that
// makes none it returns the type.
func (d *turns) line(line Line, read func(object json.RawMessage, r *Read) event.AgentRaw) Read {
	raw, object := parse(line)
	var r Read
	if line.Stream == Stderr || object == nil {
		r.Events = []event.Event{d.words.event(line, raw)}
	} else {
		kind := read(object, &r)
		if len(r.Events) == 0 {
			r.add(kind)
		}
		r.Events[0].Raw = raw
	}
	for i := range r.Events {
		r.Events[i].Agent, r.Events[i].Turn = d.name, d.turn
	}
	if d.last != nil && !d.open {
		r.State = Idle
	}
	if r.Retried = d.retried; jobs.Reasons[d.retried].Hopeless() {
		r.Hopeless = d.retried
	}
	return r
}

func (d *turns) begin(r *Read) {
	d.turn++
	d.open = true
	r.add(event.TurnStarted{})
}

// end closes the turn. Why is empty for a turn that ended well.
func (d *turns) end(turn event.TurnEnded, why jobs.Reason, r *Read) {
	d.open, d.last, d.why, d.retried = false, &turn, why, ""
	d.total.Turns = d.turn
	r.add(turn)
}

// Total implements [Decoder].
func (d *turns) Total() Total { return d.total }

// Exit implements [Decoder].
func (d *turns) Exit(code int, signal string) (event.Event, jobs.Ended) {
	class, end := d.verdict(code, signal)
	return exited(d.name, d.turn, event.RunExited{Code: code, Signal: signal, Class: class, OpenTurn: d.open}), end
}

func (d *turns) verdict(code int, signal string) (string, jobs.Ended) {
	how := d.name + fmt.Sprintf(" ended with status %d", code)
	if signal != "" {
		how = d.name + " was killed by " + signal
	}
	switch {
	case d.open && d.retried != "":
		return "died", d.retried.Ended(how + " while it retried the model API")
	case d.open:
		return "died", jobs.AgentCrashed.Ended(d.words.after(how + " within a turn"))
	case d.last != nil && d.unread > 0:
		return "died", jobs.AgentCrashed.Ended(d.words.after(how + " before it took up what it was told"))
	case d.last != nil && d.last.Status == "interrupted":
		return "interrupted", jobs.AgentFailed.Ended("the turn was interrupted")
	case d.last != nil && d.why == "":
		return "ok", jobs.Ended{Outcome: jobs.Success}
	case d.last != nil:
		return "error", d.why.Ended(firstText(append(d.last.Errors, "the turn failed")...))
	case signal != "":
		return "died", jobs.AgentCrashed.Ended(d.words.after(how + " before its turn"))
	case code == 126 || code == 127:
		return "no_turn", missing(d.name, code, &d.words)
	}
	return "no_turn", jobs.AgentProtocol.Ended(d.words.after(how + " without a turn"))
}

// httpReason maps an HTTP status of the model API to a reason.
func httpReason(status int) jobs.Reason {
	return cmp.Or(jobs.APIFailure{Status: status}.Reason(), jobs.AgentFailed)
}
