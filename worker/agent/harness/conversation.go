// Package harness runs one agent as a worker does, in a jail whose only way out is the gate to a
// model, with a person who talks to it:
//
//	Jail.Run ─▶ Conversation.Hold: lines of the agent ─▶ its decoder ─▶ events ─▶ Run
//	                       ▲──────── prompts, answers ◀───── OnEvent
//
// It is for those who try agents out. A worker itself does the same with what a job may need besides.
package harness

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/lines"
)

// A Run is what one run of an agent gave.
type Run struct {
	Events []event.Event
	End    jobs.Ended
	Total  agent.Total
	Code   int    // with which the program exited
	Signal string // that ended it
}

// Count is how many events of a kind there are.
func (r Run) Count(kind jobs.Kind) int {
	n := 0
	for _, e := range r.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Data is all the data of the events of a kind.
func (r Run) Data(kind jobs.Kind) string {
	var b strings.Builder
	for _, e := range r.Events {
		if e.Kind == kind {
			b.Write(e.Data)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// Output is the data of all events, and all lines of the agent.
func (r Run) Output() string {
	var b strings.Builder
	for _, e := range r.Events {
		fmt.Fprintf(&b, "%s\n", e.Data)
		if e.Raw != nil {
			fmt.Fprintf(&b, "%s%s\n", e.Raw.JSON, e.Raw.Text)
		}
	}
	return b.String()
}

// A Process is an agent that runs, in a jail or not.
type Process struct {
	Stdin io.WriteCloser
	// Abort ends it. It does not wait for the end, and may be called twice.
	Abort func()
	// Wait returns when it has ended and has written all its output.
	Wait func() (code int, signal string, err error)
}

// A Conversation is what a worker does between an agent and its decoder.
type Conversation struct {
	mu      sync.Mutex
	run     Run
	process Process

	Decoder agent.Decoder
	Home    string                   // of the agent; empty: a directory of its own
	Answers map[string]control.Words // to the questions of an interactive job
	Allow   bool                     // grants, once, what an interactive job asks permission for
	Say     []string                 // prompts that are sent when the agent is idle
	// OnEvent gets each event. The lines that it returns are written to the agent.
	OnEvent func(e event.Event) [][]byte
	// OnLine gets each line that is written ("in") or read ("out", "err"), in this order, and
	// before the lines of it what was said ("say"): an id and a text, as JSON. It must not keep them.
	OnLine func(way string, line []byte)
}

// Hold starts the agent of a plan, and returns when it has ended.
func (c *Conversation) Hold(d agent.Decoder, p agent.Plan, start func(stdout, stderr io.Writer) (Process, error)) (Run, error) {
	stdout, stderr := c.lines(agent.Stdout, "out"), c.lines(agent.Stderr, "err")
	c.mu.Lock() // until the conversation is ready for the first line
	process, err := start(stdout, stderr)
	if err != nil {
		c.mu.Unlock()
		return Run{}, err
	}
	c.Decoder, c.process = d, process
	c.write(p.Stdin)
	if !p.KeepStdin {
		_ = process.Stdin.Close() // its exit tells what broke
	}
	c.mu.Unlock()
	code, signal, err := process.Wait()
	stdout.End()
	stderr.End()
	e, end := d.Exit(code, signal)
	c.run.Events, c.run.End, c.run.Total = append(c.run.Events, e), end, d.Total()
	c.run.Code, c.run.Signal = code, signal
	return c.run, err
}

// Interrupt ends the agent's turn.
func (c *Conversation) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(c.Decoder.(agent.Speaker).Interrupt())
}

// Abort ends the agent, as a kill of its whole jail does.
func (c *Conversation) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.process.Abort()
}

// Answer answers what the agent asks, and returns the lines to write to it. It is for OnEvent.
func (c *Conversation) Answer(m control.Message) ([][]byte, error) {
	events, lines, err := c.Decoder.(agent.Speaker).Answer(m)
	c.run.Events = append(c.run.Events, events...)
	return lines, err
}

// Kill is Abort for OnEvent.
func (c *Conversation) Kill() { c.process.Abort() }

// tell needs c.mu.
func (c *Conversation) tell(way string, line []byte) {
	if c.OnLine != nil {
		c.OnLine(way, line)
	}
}

// write needs c.mu.
func (c *Conversation) write(lines [][]byte) {
	for _, line := range lines {
		c.tell("in", line)
		_, _ = c.process.Stdin.Write(append(line, '\n')) // it may have died; its exit tells
	}
}

// lines are those of a stream, which goes to the decoder.
func (c *Conversation) lines(stream, way string) *lines.Splitter {
	return lines.New(stream, lines.Max, func(l agent.Line) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.tell(way, l.Bytes)
		got := c.Decoder.Line(l)
		c.run.Events = append(c.run.Events, got.Events...)
		c.write(got.Reply)
		c.interact(got)
		if got.Hopeless != "" {
			c.process.Abort()
		}
	})
}

// interact acts as a person who watches; it closes stdin when nothing is left to say.
func (c *Conversation) interact(got agent.Read) {
	var lines [][]byte
	for _, e := range got.Events {
		var asked struct {
			Ask  string `json:"ask"`
			Type string `json:"type"`
		}
		opened := e.Kind == jobs.AskOpened && json.Unmarshal(e.Data, &asked) == nil
		allowed := c.Allow && asked.Type == "permission"
		if opened && (c.Answers != nil || allowed) {
			message := control.Message{Ask: asked.Ask, Answers: c.Answers}
			if allowed {
				message.Answers = nil
			}
			reply, err := c.Answer(message)
			if err != nil {
				c.process.Abort()
			}
			lines = append(lines, reply...)
		}
		if c.OnEvent != nil {
			lines = append(lines, c.OnEvent(e)...)
		}
	}
	switch {
	case got.State != agent.Idle && got.State != agent.Over || len(lines) > 0:
	case len(c.Say) > 0:
		id := jobs.NewID()
		said, _ := json.Marshal(map[string]string{"id": id, "text": c.Say[0]}) // strings only
		c.tell("say", said)
		lines = append(lines, c.Decoder.(agent.Speaker).Say(id, c.Say[0])...)
		c.Say = c.Say[1:]
	default:
		_ = c.process.Stdin.Close() // twice does no harm
	}
	c.write(lines)
}
