package agentrun

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/event"
)

// A stubborn process ends when a test says so.
type stubborn struct {
	done    chan struct{}
	stopped bool
}

func (s *stubborn) Done() <-chan struct{}      { return s.done }
func (s *stubborn) Stop(context.Context) error { s.stopped = true; return nil }

// An agent is ended by the first step that ends it. One that has no effect costs no time.
func TestStepsToTheEnd(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends, effects []string
		steps         []string
	}{
		"the interrupt ends it":    {[]string{"interrupt"}, []string{"interrupt", "input"}, []string{"interrupt"}},
		"the end of input ends it": {[]string{"input"}, []string{"input"}, []string{"interrupt", "input"}},
		"it cannot be asked":       {nil, nil, []string{"interrupt", "input", "term"}},
		"it does not react":        {nil, []string{"interrupt", "input"}, []string{"interrupt", "input", "term"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &stubborn{done: make(chan struct{})}
			take := func(step string) func() bool {
				return func() bool {
					if slices.Contains(tt.ends, step) {
						close(p.done)
					}
					return slices.Contains(tt.effects, step)
				}
			}
			limit := time.Hour
			if tt.ends == nil {
				limit = time.Millisecond
			}
			var steps []string
			shutdown{process: p, interrupt: take("interrupt"), hangUp: take("input"), limit: limit}.steps(func(step string) { steps = append(steps, step) })
			if !slices.Equal(steps, tt.steps) || p.stopped != slices.Contains(steps, "term") {
				t.Errorf("took %q, stopped: %t", steps, p.stopped)
			}
		})
	}
}

// The log tells the last step, and the time from the first.
func TestTheEndOfAHang(t *testing.T) {
	t.Parallel()
	var h hangEnd
	begin := time.Now()
	if _, hung := h.ended(begin, true); hung {
		t.Error("it did not hang")
	}
	found := &event.Hang{What: "idle"}
	h.note(found, "interrupt", begin)
	h.note(found, "term", begin.Add(time.Second))
	for killed, step := range map[bool]string{false: "term", true: "kill"} {
		if end, hung := h.ended(begin.Add(3*time.Second), killed); !hung || end.Step != step || end.Seconds != 3 || end.What != "idle" {
			t.Errorf("killed: %t: %+v", killed, end)
		}
	}
}
