package agentrun

import (
	"io"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// An Output is what carries an agent's two streams to their readers.
type Output struct {
	// Stdout and Stderr are for the jail.
	Stdout, Stderr *io.PipeWriter
	stdout, stderr *io.PipeReader
}

// NewOutput returns what an agent that is to be started writes to.
func NewOutput() Output {
	var o Output
	o.stdout, o.Stdout = io.Pipe()
	o.stderr, o.Stderr = io.Pipe()
	return o
}

// read carries every line of one stream to the events.
func (r *Run) read(stream *io.PipeReader, name string) error {
	err := agent.ReadLines(counted{stream, r.state.wrote}, name, agent.MaxLine, func(line agent.Line) error {
		r.state.line(line)
		r.pace()
		return nil
	})
	// Whoever writes must never wait for a reader that has gone.
	stream.CloseWithError(err)
	return err
}

// A counted reader tells how much was read. A line that never ends counts as
// it grows.
type counted struct {
	io.Reader
	tell func(int)
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.tell(n)
	return n, err
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
