package agentrun

import (
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/images"
)

// A recipient is the agent as one that messages are for: which it takes, and by which lines. It
// has no state but its decoder's.
type recipient struct {
	decoder     agent.Decoder
	agent       string // its name
	open        bool   // its input stays open while it runs
	interactive bool   // an interactive job of it takes prompts
	kept        bool   // its conversation can go on after this attempt
}

// speaker returns how the agent is spoken to, if it can be.
func (r recipient) speaker() (agent.Speaker, bool) {
	speaker, ok := r.decoder.(agent.Speaker)
	return speaker, ok && r.open
}

// takes says why the agent does not take such a message now; nil: it does. Closed says that its
// input is closed already.
func (r recipient) takes(c control.Message, closed bool) error {
	speaker, ok := r.speaker()
	switch {
	case !ok:
		return r.cannot(c.Verb)
	case c.Verb == control.Interrupt || c.Verb == control.Answer || !closed && len(c.Images) == 0:
		return nil
	case !closed:
		return speaker.TakesImages()
	case c.Verb == control.Prompt && r.kept:
		return control.Refuse(control.NotReady, "the agent has ended its last turn; when the job has finished, a prompt brings it back")
	}
	return control.Refuse(control.Over,
		"the agent has ended its last turn and takes no more: a job with agent.interactive keeps it for another prompt; submit a new job")
}

// cannot refuses what the agent never takes.
func (r recipient) cannot(verb control.Verb) error {
	if verb == control.Answer {
		return control.Refuse(control.Nothing, "no question is open")
	}
	what := map[control.Verb]string{
		control.Prompt: "takes one prompt and then ends", control.Interrupt: "cannot be interrupted; stop ends it",
		control.Raw: "takes no input while it runs", control.Set: "keeps its model, mode and effort while it runs",
	}[verb]
	if r.interactive {
		what += "; a job with agent.interactive takes prompts"
	}
	return control.Refuse(control.Cannot, "agent %s %s", r.agent, what)
}

// lines are what a message that the agent takes is to it, and what the session is told.
func (r recipient) lines(c control.Message) ([]event.Event, [][]byte, error) {
	speaker, ok := r.speaker()
	if !ok {
		return nil, nil, r.cannot(c.Verb)
	}
	switch c.Verb {
	case control.Interrupt:
		return nil, speaker.Interrupt(), nil
	case control.Answer:
		return speaker.Answer(c)
	case control.Prompt:
		return nil, speaker.Say(c.ID, c.Text, c.Images...), nil
	}
	if c.Verb == control.Set {
		lines, err := speaker.Set(c.ID, c.Settings())
		return nil, lines, err
	}
	lines, err := speaker.Raw(c.ID, c.Line)
	return nil, lines, err
}

// recite tells the agent what else of the conversation it must know.
func (r recipient) recite(prompts []images.Prompt) (lines [][]byte) {
	speaker, ok := r.speaker()
	if !ok {
		return nil
	}
	for _, p := range prompts {
		lines = append(lines, speaker.Say(p.ID, p.Text, p.Images...)...)
	}
	return lines
}

// answer answers a question for the pool, and says how it was closed. One that is not
// open any more needs no answer.
func (r recipient) answer(c control.Message, how string) ([]event.Event, [][]byte) {
	speaker, ok := r.decoder.(agent.Speaker)
	if !ok {
		return nil, nil
	}
	events, lines, err := speaker.Answer(c)
	if err != nil {
		return nil, nil
	}
	for i, e := range events {
		if closed, ok := e.Payload.(event.AskClosed); ok {
			closed.How = how
			events[i] = e.With(closed)
		}
	}
	return events, lines
}
