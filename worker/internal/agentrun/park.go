package agentrun

import (
	"math"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/conversation"
)

// A session is parked in these steps, each of which may be the last one:
//
//	the agent asks, and nothing happens ─▶ its capsule is stored, while it waits
//	─▶ it is ended ─▶ job.waiting ─▶ the record says so, and the slot is free

// A Parking is how an attempt ends whose questions are open.
type Parking struct {
	Asks     []string
	Question string // the first of them, for people
	Until    time.Time
}

// An undertaking is what an agent is about besides its questions.
type undertaking struct {
	tools map[string]bool // calls that have no result yet
	live  int             // what it runs in the background
	// attended: somebody has a terminal in its jail.
	attended bool
}

// maxTools bounds the calls that are remembered: an agent may begin any number.
const maxTools = 1024

func (u *undertaking) note(events []event.Event) {
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.ToolStarted:
			if u.tools == nil {
				u.tools = map[string]bool{}
			}
			if len(u.tools) < maxTools {
				u.tools[d.Call] = true
			}
		case event.ToolEnded:
			delete(u.tools, d.Call)
		case event.TurnEnded:
			clear(u.tools)
		case event.TaskUpdated:
			if d.Live != nil {
				u.live = len(*d.Live)
			}
		}
	}
}

// lookAtAsks gives up the questions that nobody has answered in time, and has the
// session parked if it does nothing but wait. It returns when to look again.
func (r *Run) lookAtAsks(now time.Time, quiet time.Duration) time.Duration {
	if len(r.asks) == 0 {
		return math.MaxInt64
	}
	limit, oldest := r.cfg.Job.Ask.Limit(), now
	for _, a := range r.asks {
		if a.since.Before(oldest) {
			oldest = a.since
		}
	}
	if left := limit - now.Sub(oldest); left > 0 {
		limit = left
	} else {
		r.lapse(now, limit)
		r.pulse.last = now // it can go on now
		return limit
	}
	if !r.onlyAsks() || r.offered.Equal(r.pulse.last) {
		return limit
	}
	if grace := r.cfg.Job.Ask.Grace() - quiet; grace > 0 {
		return min(limit, grace)
	}
	r.offered = r.pulse.last
	at := r.now()
	at.Since = r.pulse.last
	r.offer(at)
	return limit
}

// onlyAsks reports whether the agent does nothing but wait for answers. A tool
// that it waits for may be the one that asks.
func (r *Run) onlyAsks() bool {
	if !r.cfg.Parkable || r.taking > 0 || r.work.attended || r.leaving != "" || r.found != nil || !r.pulse.closed.IsZero() && r.cfg.KeepStdin {
		return false
	}
	tools := len(r.work.tools) + r.work.live
	for _, a := range r.asks {
		p, program := r.questions[a.Ask.Ask]
		if a.Type != "question" || p.bounded {
			return false
		}
		if program || r.work.tools[a.Call] {
			tools--
		}
	}
	return tools <= 0
}

// leaveOpen decides that the session is parked, unless something has happened
// since that was asked for. Stored says that there is a capsule of then.
func (r *Run) leaveOpen(at conversation.Position, stored bool) {
	attended := r.terminals.InUse()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.work.attended = attended
	if !stored && r.cfg.Conversation.Continues() || !r.pulse.last.Equal(at.Since) || !r.onlyAsks() || !slices.Equal(r.openAsks(), at.Asks) {
		return
	}
	p := &Parking{Asks: at.Asks, Question: r.asks[0].words(), Until: r.asks[0].since.Add(r.cfg.Job.Ask.Limit())}
	for _, a := range r.asks {
		if until := a.since.Add(r.cfg.Job.Ask.Limit()); until.Before(p.Until) {
			p.Until = until
		}
	}
	r.parked = p
	r.wake()
}

// parks reports whether the session is being parked.
func (r *Run) parks() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parked != nil
}
