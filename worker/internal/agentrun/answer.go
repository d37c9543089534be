package agentrun

import (
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// An Answer is a decoder that keeps what the agent says in the end: the result of its last
// turn or, of a program without turns, everything that it prints.
type Answer struct {
	agent.Decoder
	Limit int // bytes of what such a program prints

	result string
	lines  []byte
}

// Line decodes a line, and keeps what it says.
func (a *Answer) Line(line agent.Line) agent.Read {
	read := a.Decoder.Line(line)
	for _, e := range read.Events {
		switch d := e.Payload.(type) {
		case event.TurnEnded:
			a.result = d.Result
		case event.OutputLine:
			if d.Stream == agent.Stdout {
				room := max(0, a.Limit-len(a.lines))
				a.lines = append(append(a.lines, line.Bytes[:min(len(line.Bytes), room)]...), '\n')
			}
		}
	}
	return read
}

// Text returns what the agent said.
func (a *Answer) Text() string {
	if a.result != "" {
		return a.result
	}
	return string(a.lines)
}
