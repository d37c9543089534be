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
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// AcceptLimit bounds how long an accepted message may take to be stored.
const AcceptLimit = 10 * time.Second

// Takes says why the agent does not take such a message now; nil: it does.
func (r *Run) Takes(c control.Message) error {
	r.state.mu.Lock()
	defer r.state.mu.Unlock()
	return r.state.recipient.takes(c, !r.state.watchdog.InputOpen())
}

// Control does what a message says: first it is decided whether that can be
// done, then that it will be is stored, and only then it is. The log may take
// long, so no lock is held meanwhile; messages come one after the other. Its images
// are stored already.
func (r *Run) Control(ctx context.Context, c control.Message, images []control.StoredImage) error {
	do, c, err := r.state.decide(c)
	if err != nil {
		return err
	}
	err = r.accept(ctx, c, images)
	r.state.conclude(do, err == nil)
	return err
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
	r.state.mu.Lock()
	e.Turn = r.state.turns.turn
	r.state.mu.Unlock()
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

// An effect is what follows from a message once it is stored: events, lines for the agent,
// and a change of the state.
type effect struct {
	events []event.Event
	lines  [][]byte
	then   func()
	undo   func() // what is done instead if the message cannot be stored
}

// decide finds out what follows from a message, and returns the message with what it answers.
// From then on the agent is not taken for one that waits.
func (s *state) decide(c control.Message) (effect, control.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.parked != nil:
		return effect{}, c, control.Refuse(control.NotReady, "the session is being parked")
	case s.ending():
		return effect{}, c, control.Refuse(control.Over, "the agent is being ended")
	}
	do, err := s.effect(c)
	if err != nil {
		return do, c, err
	}
	for _, e := range do.events {
		if closed, ok := e.Payload.(event.AskClosed); ok {
			c.Ask = closed.Ask // readers of the log must know what it answers
		}
	}
	s.questions.note(do.events) // an answered question does not lapse
	s.watchdog.Touch(time.Now())
	s.taking++
	return do, c, nil
}

// conclude does what was decided, if that it will be is stored.
func (s *state) conclude(do effect, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taking--
	if !stored {
		if do.undo != nil {
			do.undo()
		}
		return
	}
	s.in.put(do.lines...)
	s.cfg.Events.Put(do.events...)
	if do.then != nil {
		do.then()
	}
	s.watchdog.Touch(time.Now()) // a user is there
	s.news.set()
}

// effect finds out what follows from a message. It is an error where that cannot be.
func (s *state) effect(c control.Message) (effect, error) {
	if c.Verb == control.Stop {
		return effect{then: func() { s.stopped = cmp.Or(c.By, "somebody") }}, nil
	}
	if c.Verb == control.Answer {
		if do, ours, err := s.answerProgram(c); ours || err != nil {
			return do, err
		}
	}
	if err := s.recipient.takes(c, !s.watchdog.InputOpen()); err != nil {
		return effect{}, err
	}
	if c.Verb == control.Interrupt && s.phase != agent.Working {
		return effect{}, control.Refuse(control.Nothing, "no turn is open")
	}
	if s.in.full() {
		return effect{}, control.Refuse(control.Busy, "the agent has not read earlier messages")
	}
	// From here on the decoder has the message. One that waited for the agent may
	// send a prompt by itself, before it is stored that it was accepted.
	events, lines, err := s.recipient.lines(c)
	if err != nil {
		return effect{}, err
	}
	do := effect{events: events, lines: lines}
	switch c.Verb {
	case control.Set:
		do.then = func() { s.cfg.Prompts.Change(c.Settings()) }
	case control.Prompt:
		s.phase = agent.Working // it has something to do
		s.cfg.Prompts.Tells(c.ID)
	}
	return do, nil
}

// answerProgram finds out what follows from an answer to a program in the jail. Ours says that
// it is for one.
func (s *state) answerProgram(c control.Message) (do effect, ours bool, err error) {
	id, a, err := s.questions.open.take(c)
	if id == "" || err != nil {
		return effect{}, false, err
	}
	return effect{
		events: []event.Event{s.questions.closed(id, a.How)},
		then:   func() { s.questions.open.settle(id, a) },
		undo:   func() { s.questions.open.settle(id, inside.Unanswered) },
	}, true, nil
}
