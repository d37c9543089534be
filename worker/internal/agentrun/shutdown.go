package agentrun

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
)

// A process is the agent's jail. It is an interface because a test must keep it from ending.
type process interface {
	Done() <-chan struct{}
	Stop(ctx context.Context) error
}

// A shutdown ends an agent: it interrupts the turn, closes the input, asks the
// process to end, and kills everything in the jail. Each step has its time. The
// sequence does not depend on the agent.
type shutdown struct {
	process process
	// interrupt and hangUp report whether the agent may end because of them.
	interrupt, hangUp func() bool
	limit             time.Duration // of a step
}

// steps takes each step until the agent has ended, and reports it before.
func (s shutdown) steps(before func(step string)) {
	for _, step := range []struct {
		name string
		take func() bool
	}{{"interrupt", s.interrupt}, {"input", s.hangUp}} {
		before(step.name)
		if step.take() && s.gone(s.limit) {
			return
		}
	}
	before("term")
	_ = s.process.Stop(context.Background()) // bounded by the jail's grace; Wait reports what failed
}

// gone waits for the agent's end.
func (s shutdown) gone(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s.process.Done():
		return true
	case <-timer.C:
		return false
	}
}

// A hangEnd is how an agent that hangs is ended.
type hangEnd struct {
	found *event.Hang // nil: it does not hang
	at    time.Time
	step  string // the last that was taken
}

// note says which step may end the agent.
func (h *hangEnd) note(found *event.Hang, step string, now time.Time) {
	h.found, h.step = found, step
	if h.at.IsZero() {
		h.at = now
	}
}

// ended says by which step the agent ended, and how long that took. It reports whether the
// agent hung.
func (h *hangEnd) ended(now time.Time, killed bool) (event.Hang, bool) {
	if h.found == nil {
		return event.Hang{}, false
	}
	end := *h.found
	end.Step, end.Seconds = h.step, now.Sub(h.at).Seconds()
	if end.Step == "term" && killed {
		end.Step = "kill"
	}
	return end, true
}
