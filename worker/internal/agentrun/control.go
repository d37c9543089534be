package agentrun

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// AcceptLimit bounds how long an accepted message may take to be stored.
const AcceptLimit = 10 * time.Second

// Over reports whether the agent has ended.
func (r *Run) Over() bool {
	select {
	case <-r.process.Done():
		return true
	default:
		return false
	}
}

// A deed is what a message comes to: events, lines for the agent, and what
// follows.
type deed struct {
	events []event.Event
	lines  [][]byte
	then   func()
	undo   func() // what is done instead if the message cannot be stored
}

// Control does what a message says: first it is decided whether that can be
// done, then that it will be is stored, and only then it is. The log may take
// long, so no lock is held meanwhile; messages come one after the other. Its images
// are stored already.
func (r *Run) Control(ctx context.Context, c control.Message, images []control.StoredImage) error {
	do, c, err := r.decide(c)
	if err != nil {
		return err
	}
	err = r.accept(ctx, c, images)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taking--
	switch {
	case err != nil && do.undo != nil:
		do.undo()
		return err
	case err != nil:
		return err
	}
	r.in.put(do.lines...)
	r.cfg.Events.Put(do.events...)
	if do.then != nil {
		do.then()
	}
	r.pulse.last = time.Now() // somebody is there
	r.wake()
	return nil
}

// decide finds out what a message comes to, and returns it with what it answers.
// From then on the agent is not taken for one that waits.
func (r *Run) decide(c control.Message) (deed, control.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.parked != nil:
		return deed{}, c, control.Refuse(control.NotReady, "the session is being parked")
	case r.leaving != "" || r.found != nil:
		return deed{}, c, control.Refuse(control.Over, "the agent is being ended")
	}
	do, err := r.deed(c)
	if err != nil {
		return do, c, err
	}
	for _, e := range do.events {
		if closed, ok := e.Payload.(event.AskClosed); ok {
			c.Ask = closed.Ask // who reads the log must know what it answers
		}
	}
	if len(do.lines) > 0 && r.in.full() {
		return do, c, control.Refuse(control.Busy, "the agent has not read earlier messages")
	}
	r.asked(do.events) // an answered question does not lapse
	r.pulse.last = time.Now()
	r.taking++
	return do, c, nil
}

// accept stores that a message was taken, and where its images are. It is the proof
// of the lease: the broker refuses the event of an attempt that another one has
// followed.
func (r *Run) accept(ctx context.Context, c control.Message, images []control.StoredImage) error {
	ctx, cancel := context.WithTimeout(ctx, AcceptLimit)
	defer cancel()
	in := c.Input()
	in.Images = images
	e := event.New(event.InputState(in))
	r.mu.Lock()
	e.Turn = r.turn
	r.mu.Unlock()
	err := r.cfg.Append(ctx, e)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jobs.ErrFenced):
		r.cfg.End(err)
	default:
		// Whether it is in the log is not known, and so not what was done.
		r.cfg.End(verdict.Failed(jobs.StoreFailed, "store that a message was accepted", err))
	}
	return control.Refuse(control.Lost, "the worker could not store it: %v", err)
}

// deed finds out what a message comes to. It is an error where that cannot be.
func (r *Run) deed(c control.Message) (deed, error) {
	if c.Verb == control.Stop {
		return deed{then: func() { r.leaving = cmp.Or(c.By, "somebody") }}, nil
	}
	if c.Verb == control.Answer {
		if do, ours, err := r.answer(c); ours || err != nil {
			return do, err
		}
	}
	speaker, err := r.listener(c)
	if err != nil {
		return deed{}, err
	}
	switch c.Verb {
	case control.Interrupt:
		if r.state != agent.Working {
			return deed{}, control.Refuse(control.Nothing, "no turn is open")
		}
		return deed{lines: speaker.Interrupt()}, nil
	case control.Answer:
		events, lines, err := speaker.Answer(c)
		return deed{events: events, lines: lines}, err
	}
	if c.Verb == control.Prompt {
		return deed{lines: speaker.Say(c.ID, c.Text, c.Images...), then: func() {
			r.state = agent.Working // it has something to do
			r.cfg.Prompts.Tells(c.ID)
		}}, nil
	}
	if c.Verb == control.Set {
		return deed{lines: speaker.Set(c.ID, c.Model, c.Mode)}, nil
	}
	lines, err := speaker.Raw(c.ID, c.Line)
	return deed{lines: lines}, err
}

// listener returns the agent's decoder if the agent takes such a message now. Its
// caller holds the lock.
func (r *Run) listener(c control.Message) (agent.Speaker, error) {
	speaker, ok := r.decoder.(agent.Speaker)
	switch {
	case !ok || !r.cfg.KeepStdin:
		return nil, r.mute(c.Verb)
	case c.Verb == control.Interrupt || c.Verb == control.Answer || r.pulse.closed.IsZero() && len(c.Images) == 0:
		return speaker, nil
	case r.pulse.closed.IsZero():
		return speaker, speaker.TakesImages()
	case c.Verb == control.Prompt && r.cfg.Conversation.Kept():
		return nil, control.Refuse(control.NotReady, "the agent has ended its last turn; when the job has finished, a prompt brings it back")
	}
	return nil, control.Refuse(control.Over,
		"the agent has ended its last turn and takes no more: a job with agent.interactive keeps it for another prompt; submit a new job")
}

// mute refuses what the agent has no ear for.
func (r *Run) mute(verb control.Verb) error {
	if verb == control.Answer {
		return control.Refuse(control.Nothing, "no question is open")
	}
	what := map[control.Verb]string{
		control.Prompt: "takes one prompt and then ends", control.Interrupt: "cannot be interrupted; stop ends it",
		control.Raw: "takes no input while it runs", control.Set: "keeps its model and mode while it runs",
	}[verb]
	if r.cfg.Hears {
		what += "; a job with agent.interactive takes prompts"
	}
	return control.Refuse(control.Cannot, "agent %s %s", r.cfg.Job.Agent.Name, what)
}

// replay tells the agent what else the conversation has not heard.
func (r *Run) replay() {
	speaker, ok := r.decoder.(agent.Speaker)
	if !ok || !r.cfg.KeepStdin || !r.cfg.First {
		return
	}
	for _, told := range r.cfg.Prompts.Rest() {
		r.in.add(speaker.Say(told.ID, told.Text, told.Images...)...)
	}
}

// leave ends an agent that somebody has told to stop. One that rests only has
// to hear that there is no more.
func (r *Run) leave() {
	r.mu.Lock()
	rests := r.state != agent.Working && r.cfg.KeepStdin
	r.mu.Unlock()
	if rests {
		r.hangUp()
		if r.gone(r.cfg.Hangs.Exit) {
			return
		}
	}
	r.steps(func(string) {})
}

// Takes says why the agent does not take such a message now; nil: it does.
func (r *Run) Takes(c control.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.listener(c)
	return err
}
