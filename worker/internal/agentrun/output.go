package agentrun

import (
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/lines"
)

// An output is one of the agent's two streams, on its way to the events. A line that never ends
// counts as it grows.
type output struct {
	run   *Run
	lines *lines.Splitter
}

func (r *Run) newOutput(stream string) *output {
	return &output{r, lines.New(stream, lines.Max, func(line agent.Line) {
		r.state.line(line)
		r.pace()
	})}
}

// Write waits until the run has begun.
func (o *output) Write(p []byte) (int, error) {
	<-o.run.begun
	o.run.state.wrote(len(p))
	return o.lines.Write(p)
}

// Streams are those of the agent, for its jail. What is written to them waits until Wait is called.
func (r *Run) Streams() sandbox.Streams {
	return sandbox.Streams{Stdout: r.stdout, Stderr: r.stderr, StdinPipe: true}
}

// pace holds an agent up that writes faster than the broker takes it. Silence for
// that reason is not the agent's.
func (r *Run) pace() {
	if !r.cfg.Events.Full() {
		return
	}
	r.state.hold(1)
	defer r.state.hold(-1)
	r.cfg.Events.Pace()
}

// output records what is not the agent's own, in its turn.
func (r *Run) output(events ...event.Event) {
	r.state.mu.Lock()
	turn := r.state.turns.turn
	r.state.mu.Unlock()
	for i := range events {
		events[i].Turn = turn
	}
	r.cfg.Events.PutOutput(events...)
}
