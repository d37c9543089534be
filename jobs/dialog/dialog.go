// Package dialog reads from a session's log what was said between people and
// the agents of one job: messages, questions, answers; values only.
package dialog

import (
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
)

// A Past is what a session's log says about the talk with one job's agents: the
// messages they got, what they asked, and what was answered. Read takes the
// session's events in their order, from the first one on.
type Past struct {
	Job      string
	Attempt  int  // the last that has begun
	Parked   bool // which has ended with its questions open
	Receipts []control.Receipt
	Prompts  []control.Input // that were accepted
	// Last are the ids of what was accepted since the last attempt began or
	// ended.
	Last []string
	// Asks are the questions of the last attempt and of those before it that it
	// goes on with.
	Asks             []Asked
	control.Settings // what the agent was set to

	answers map[string]control.Input // by the question's id: the first that was accepted
	seen    map[string]bool
}

// An Asked is a question that was asked. How says how it was closed; empty: it
// was not.
type Asked struct {
	control.Ask
	Opened  time.Time
	Attempt int
	Answer  *control.Input // the first that was accepted; nil: none was
}

// Read takes one event.
func (p *Past) Read(e jobs.Event) {
	if e.Job != p.Job {
		return
	}
	payload, _ := event.Decode(e) // what is not as it should be is empty
	switch d := payload.(type) {
	case event.JobClaimed:
		p.Attempt, p.Parked, p.Last = e.Attempt, false, nil
	case event.JobWaiting:
		p.Parked = true
	case event.JobRequeued:
		if !d.Reason.Continues() {
			p.Asks = nil
		}
	case event.JobFinished:
		p.Asks, p.Last = nil, nil
	case event.AskOpened:
		p.opened(e, control.Ask(d))
	case event.AskClosed:
		p.closed(control.Ask(d))
	case event.InputState:
		if d.State == control.Accepted {
			p.accepted(e, control.Input(d))
		}
	}
}

func (p *Past) find(id string) int {
	return slices.IndexFunc(p.Asks, func(a Asked) bool { return a.Ask.Ask == id })
}

func (p *Past) opened(e jobs.Event, a control.Ask) {
	asked := Asked{Ask: a, Opened: e.Time, Attempt: e.Attempt}
	if p.find(asked.Ask.Ask) >= 0 {
		return
	}
	if in, ok := p.answers[asked.Ask.Ask]; ok { // the log had it first
		asked.Answer = &in
	}
	p.Asks = append(p.Asks, asked)
}

// closed keeps, of the questions that are over, those that have an answer, even if
// only that none came: an agent may ask for ever.
func (p *Past) closed(a control.Ask) {
	i := p.find(a.Ask)
	switch {
	case i < 0:
	case p.Asks[i].Answer == nil && a.How != "expired" && a.How != "default":
		p.Asks = slices.Delete(p.Asks, i, i+1)
	default:
		p.Asks[i].How = a.How
	}
}

func (p *Past) accepted(e jobs.Event, in control.Input) {
	if p.seen == nil {
		p.seen, p.answers = map[string]bool{}, map[string]control.Input{}
	}
	if p.seen[in.Input] {
		return
	}
	p.seen[in.Input] = true
	p.Last = append(p.Last, in.Input)
	p.Receipts = append(p.Receipts, control.Receipt{
		ID: in.Input, Verb: in.Verb, Job: e.Job, Session: e.Session, Attempt: e.Attempt, State: in.State,
	})
	switch in.Verb {
	case control.Set:
		p.Settings = p.Settings.Then(in.Settings())
	case control.Prompt:
		p.Prompts = append(p.Prompts, in)
	case control.Answer:
		if _, answered := p.answers[in.Ask]; answered {
			return
		}
		p.answers[in.Ask] = in
		if i := p.find(in.Ask); i >= 0 {
			p.Asks[i].Answer = &in
		}
	}
}

// Open reports whether the question still waits for an answer.
func (a Asked) Open() bool { return a.How == "" && a.Answer == nil }

// Open are the ids of the questions without an answer.
func (p *Past) Open() (ids []string) {
	for _, a := range p.Asks {
		if a.Open() {
			ids = append(ids, a.Ask.Ask)
		}
	}
	return ids
}

// Answering finds the question that c answers, and refuses what does not
// answer one that is open. It returns c with the question's name.
func (p *Past) Answering(c control.Message) (control.Message, error) {
	if i := p.find(c.Ask); i >= 0 && p.Asks[i].Answer != nil {
		return c, control.Refuse(control.Nothing, "question %s is answered already", c.Ask)
	}
	id, err := c.Meant(p.Open())
	if err != nil {
		return c, err
	}
	c.Ask = id
	if c.Deny {
		return c, nil
	}
	asked := p.Asks[p.find(id)]
	if asked.Type == "permission" {
		_, err := c.Chosen(asked.List()[0])
		return c, err
	}
	_, err = c.Fit(asked.List())
	return c, err
}

// Denied reports whether the answer declines, or refuses a permission.
func (a Asked) Denied() bool {
	switch {
	case a.Answer == nil:
		return false
	case a.Answer.Deny:
		return true
	case a.Type != "permission":
		return false
	}
	asked := a.List()[0]
	i, err := a.Answer.Answer().Chosen(asked)
	return err == nil && i >= 0 && asked.Options[i].Refuses()
}

// Said returns the answer of each question of an ask that was answered. One
// that was declined has none.
func (a Asked) Said() map[string]string {
	if a.Answer == nil || a.Answer.Deny {
		return nil
	}
	answers, err := a.Answer.Answer().Fit(a.List())
	if err != nil { // who accepted it saw other questions
		return nil
	}
	return answers
}
