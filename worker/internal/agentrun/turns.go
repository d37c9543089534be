package agentrun

import (
	"time"

	"github.com/penstock-run/penstock/jobs/event"
)

// turns counts and measures the turns of an agent.
type turns struct {
	turn  int       // as its last line told
	began time.Time // zero: none is open
}

// time measures the turns whose agent does not tell how long they took.
func (t *turns) time(events []event.Event, now time.Time) {
	for i, e := range events {
		switch turn := e.Payload.(type) {
		case event.TurnStarted:
			t.began = now
		case event.TurnEnded:
			if turn.Seconds == 0 && !t.began.IsZero() {
				turn.Seconds = now.Sub(t.began).Seconds()
				events[i] = e.With(turn)
			}
			t.began = time.Time{}
		}
	}
}

// stamp gives an event that is not the agent's own its turn.
func (t *turns) stamp(e event.Event) event.Event {
	e.Turn = t.turn
	return e
}
