package acp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/internal/decode"
	"github.com/penstock-run/penstock/worker/agent/internal/jsonrpc"
)

// A replay is what an agent repeats of a session that it loads. Earlier processes have told it.
//
//	session/load ──▶ replay ──▶ answer ──▶ session/prompt           as the protocol requires
//	session/load ──▶ answer ──▶ replay ──▶ its end ──▶ session/prompt
//
// An agent that answers before it replays looks the same in both as one that says something new.
// Where the end of the replay is not known by what it says ([Options.ReplayEnd]), the agent is
// asked something that it answers at once, until it has said nothing in between for a few times.
// A replay that begins even later begins with a message of the user, which is not what the user
// has said to this process.
type replay struct {
	on    bool   // what comes belongs to it
	some  bool   // something of it has come
	fresh bool   // something has come since the agent was asked
	quiet int    // how often it has answered without anything new
	echo  string // what is left of the prompt, should the agent repeat that
}

// echoMethod is a request that no agent knows: names of extensions begin with "_". So each says
// at once that it does not.
const echoMethod = "_penstock/echo"

// quietEchoes are enough answers in a row to take the replay for finished.
const quietEchoes = 5

// repeated are the updates of which a replay consists.
var repeated = []string{"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update", "plan", "usage_update"}

// endLoad goes on when the request for the session is answered.
func (d *decoder) endLoad(r *agent.Read) {
	switch {
	case !d.replay.on || d.with.ReplayEnd != "":
	case d.replay.some:
		d.replay.on = false
	default:
		r.Reply = append(r.Reply, d.askEcho())
	}
}

func (d *decoder) askEcho() []byte {
	d.replay.fresh = false
	return d.rpc.Request(echoMethod, struct{}{}, "")
}

// readEcho ends the replay, or asks again.
func (d *decoder) readEcho(r *agent.Read) {
	p := &d.replay
	if p.quiet++; p.fresh {
		p.quiet = 0
	}
	switch {
	case !p.on: // the turn in which it began is over
	case p.quiet < quietEchoes:
		r.Reply = append(r.Reply, d.askEcho())
	default:
		p.on = false // which readAnswer looks at next
		if !p.some {
			r.Add(event.Notice{Text: fmt.Sprintf("agent %s replayed nothing of the session that it loaded, so it may not know it", d.Name)})
		}
	}
}

// readReplay looks for the end of the replay. What the agent has said earlier may contain the
// text of it, but no message of the user.
func (d *decoder) readReplay(u *sessionUpdate, r *agent.Read) {
	if slices.Contains(repeated, u.Type) {
		d.replay.some, d.replay.fresh = true, true
	}
	if u.Type == "user_message_chunk" && d.with.ReplayEnd != "" && textOf(u.Content) == d.with.ReplayEnd {
		d.replay.on = false
		r.Reply = append(r.Reply, d.next()...)
	}
}

// replaysLate reports whether a replay begins after the prompt of a process that goes on with a
// session.
func (d *decoder) replaysLate(u *sessionUpdate, r *agent.Read) bool {
	if d.launch.Resume == "" || d.with.ReplayEnd != "" || u.Type != "user_message_chunk" {
		return false
	}
	var repeats bool
	if d.replay.echo, repeats = strings.CutPrefix(d.replay.echo, textOf(u.Content)); repeats {
		return false
	}
	d.replay.on, d.replay.quiet = true, 0
	r.Reply = append(r.Reply, d.askEcho())
	return true
}

// forgets reports whether a message refuses the first prompt of a process that goes on with a
// session, for no fault of the model API: the agent has not loaded what it says that it has.
func (d *decoder) forgets(m jsonrpc.Message) bool {
	return m.Method == "" && m.Error != nil && d.rpc.Open(m) == "session/prompt" && d.launch.Resume != "" && d.with.ReplayEnd == "" && d.Turn == 0 &&
		m.Error.Code != authRequired && (m.Error.Code < 400 || m.Error.Code >= 600) && decode.HTTPReason(decode.StatusIn(errorText(m.Error))) == jobs.AgentFailed
}
