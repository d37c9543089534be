package agentrun

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
)

// A talker turns each line into the event that its test gives.
type talker struct {
	agent.Decoder
	says func(agent.Line) event.Payload
}

func (t talker) Line(line agent.Line) agent.Read {
	return agent.Read{Events: []event.Event{event.Make(t.says(line))}}
}

// An agent with turns has said the result of the last one; what a program prints is cut
// at the limit, without what it prints beside it.
func TestAnswer(t *testing.T) {
	t.Parallel()
	plain := func(line agent.Line) event.Payload { return event.OutputLine{Stream: line.Stream} }
	turns := func(line agent.Line) event.Payload { return event.TurnEnded{Result: string(line.Bytes)} }
	for name, c := range map[string]struct {
		says  func(agent.Line) event.Payload
		lines []agent.Line
		want  string
	}{
		"turns":            {turns, []agent.Line{{Bytes: []byte("first")}, {Bytes: []byte("last")}}, "last"},
		"output":           {plain, []agent.Line{{Stream: agent.Stdout, Bytes: []byte("Title")}, {Stream: agent.Stderr, Bytes: []byte("noise")}, {Stream: agent.Stdout, Bytes: []byte("body")}}, "Title\nbody\n"},
		"beyond the limit": {plain, []agent.Line{{Stream: agent.Stdout, Bytes: []byte(strings.Repeat("x", 30))}}, strings.Repeat("x", 20) + "\n"},
		"nothing was said": {plain, nil, ""},
	} {
		answer := &Answer{Decoder: talker{says: c.says}, Limit: 20}
		for _, line := range c.lines {
			answer.Line(line)
		}
		if got := answer.Text(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
