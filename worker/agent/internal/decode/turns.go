package decode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/wording"
)

// Turns is the common part of decoders whose agents report when a turn begins and how
// it ends: one turn in a process, or many.
//
//	(nothing) ──begin──▶ turn open ──end──▶ turn over ──begin──▶ …
type Turns struct {
	Name    string // of the agent, as events name it
	Open    bool
	Turn    int
	Last    *event.TurnEnded // how the turn ended
	Why     jobs.Reason      // of a turn that failed
	Retried jobs.Reason      // why the model API is being retried
	Sum     agent.Total
	Stderr  LastError
	Unread  int // prompts that the agent was sent and has not taken up at its end
}

// Decode adds the events of a line. Read makes events of a JSON object; for one that
// makes none it returns the type.
func (d *Turns) Decode(line agent.Line, read func(object json.RawMessage, r *agent.Read) event.AgentRaw) agent.Read {
	raw, object := Parse(line)
	var r agent.Read
	if line.Stream == agent.Stderr || object == nil {
		r.Events = []event.Event{d.Stderr.Event(line, raw)}
	} else {
		kind := read(object, &r)
		if len(r.Events) == 0 {
			r.Add(kind)
		}
		r.Events[0].Raw = raw
	}
	for i := range r.Events {
		r.Events[i].Agent, r.Events[i].Turn = d.Name, d.Turn
	}
	if d.Last != nil && !d.Open {
		r.State = agent.Idle
	}
	if r.Retried = d.Retried; jobs.Reasons[d.Retried].Hopeless() {
		r.Hopeless = d.Retried
	}
	return r
}

// Begin opens a turn.
func (d *Turns) Begin(r *agent.Read) {
	d.Turn++
	d.Open = true
	r.Add(event.TurnStarted{})
}

// End closes the turn. Why is empty for a turn that ended well.
func (d *Turns) End(turn event.TurnEnded, why jobs.Reason, r *agent.Read) {
	d.Open, d.Last, d.Why, d.Retried = false, &turn, why, ""
	d.Sum.Turns = d.Turn
	r.Add(turn)
}

// Total implements [agent.Decoder].
func (d *Turns) Total() agent.Total { return d.Sum }

// Exit implements [agent.Decoder].
func (d *Turns) Exit(code int, signal string) (event.Event, jobs.Ended) {
	class, end := d.verdict(code, signal)
	return Exited(d.Name, d.Turn, event.RunExited{Code: code, Signal: signal, Class: class, OpenTurn: d.Open}), end
}

func (d *Turns) verdict(code int, signal string) (string, jobs.Ended) {
	how := d.Name + fmt.Sprintf(" ended with status %d", code)
	if signal != "" {
		how = d.Name + " was killed by " + signal
	}
	switch {
	case d.Open && d.Retried != "":
		return "died", d.Retried.Ended(how + " while it retried the model API")
	case d.Open:
		return "died", jobs.AgentCrashed.Ended(d.Stderr.After(how + " within a turn"))
	case d.Last != nil && d.Unread > 0:
		return "died", jobs.AgentCrashed.Ended(d.Stderr.After(how + " before it took up what it was told"))
	case d.Last != nil && d.Last.Status == "interrupted":
		return "interrupted", jobs.AgentFailed.Ended("the turn was interrupted")
	case d.Last != nil && d.Why == "":
		return "ok", jobs.Ended{Outcome: jobs.Success}
	case d.Last != nil:
		return "error", d.Why.Ended(wording.First(append(d.Last.Errors, "the turn failed")...))
	case signal != "":
		return "died", jobs.AgentCrashed.Ended(d.Stderr.After(how + " before its turn"))
	case code == 126 || code == 127:
		return "no_turn", Missing(d.Name, code, &d.Stderr)
	}
	return "no_turn", jobs.AgentProtocol.Ended(d.Stderr.After(how + " without a turn"))
}

// HTTPReason maps an HTTP status of the model API to a reason.
func HTTPReason(status int) jobs.Reason {
	return cmp.Or(jobs.APIFailure{Status: status}.Reason(), jobs.AgentFailed)
}

var httpStatus = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`status:? (\d{3})\b`) })

// StatusIn finds the HTTP status of the model API in an error message; zero: it names
// none.
func StatusIn(message string) int {
	m := httpStatus().FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	status, _ := strconv.Atoi(m[1]) // three digits
	return status
}

// Missing is the verdict on a program that was not found or cannot be executed.
func Missing(program string, code int, last *LastError) jobs.Ended {
	what := "was not found (status 127)"
	if code == 126 {
		what = "cannot be executed (status 126)"
	}
	return jobs.AgentMissing.Ended(last.After(fmt.Sprintf(
		"%s %s; the jail sees the system's directories and the workspace only, so install it there, name its path in the workspace, or use an image", program, what)))
}

// Exited is the event run.exited of an agent.
func Exited(name string, turn int, data event.RunExited) event.Event {
	e := event.Make(data)
	e.Agent, e.Turn = name, turn
	return e
}
