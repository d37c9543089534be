package agentrun

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// maxAsks is how many questions of an agent may be open at once.
const maxAsks = 16

// tooMany is what the agent hears whose questions are more.
const tooMany = "Too many questions are open. Wait for the answers."

// An openAsk is a question that nobody has answered yet.
type openAsk struct {
	control.Ask
	since time.Time
}

// openAsks are the ids of the questions that are open.
func (r *Run) openAsks() (ids []string) {
	for _, a := range r.asks {
		ids = append(ids, a.Ask.Ask)
	}
	return ids
}

// asked keeps the list of open questions. One that is asked once more is the
// same question.
func (r *Run) asked(events []event.Event) {
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.AskOpened:
			if !slices.ContainsFunc(r.asks, func(a openAsk) bool { return a.Ask.Ask == d.Ask }) {
				r.asks = append(r.asks, openAsk{control.Ask(d), time.Now()})
			}
		case event.AskClosed:
			r.asks = slices.DeleteFunc(r.asks, func(a openAsk) bool { return a.Ask.Ask == d.Ask })
		default:
			continue
		}
		r.wake() // there is another time to look
	}
	r.tellAsks()
}

// tellAsks puts the oldest question that is open into the job's record, for
// people who ask why the job does not end.
func (r *Run) tellAsks() {
	var open *jobs.OpenAsk
	if len(r.asks) > 0 {
		a := r.asks[0]
		open = &jobs.OpenAsk{Ask: a.Ask.Ask, Type: a.Type, Question: r.clean(a.words()), Since: a.since.UTC(), Open: len(r.asks)}
	}
	if was := r.asking; (was == nil) != (open == nil) || open != nil && *was != *open {
		r.asking = open
		r.cfg.Lease.Ask(open)
		r.cfg.Lease.Renew()
	}
}

// lapse closes the questions that have been open for so long: nobody came in
// time, and the job says what that means.
func (r *Run) lapse(now time.Time, limit time.Duration) {
	var left []openAsk
	for _, a := range r.asks {
		if now.Sub(a.since) < limit {
			left = append(left, a)
			continue
		}
		if r.cfg.Job.Ask.Fail {
			r.cfg.End(verdict.Ended(jobs.Unanswered, "its question was not answered: %s", a.words()))
		}
		if r.expire(a.Ask.Ask) {
			continue
		}
		answer, how := r.cfg.Job.Ask.Default, "default"
		if answer == "" || a.Type != "question" {
			r.cfg.Events.Put(r.decline(a.Ask.Ask, "expired", "")...)
			continue
		}
		c := control.Message{Verb: control.Answer, Ask: a.Ask.Ask, Text: answer}
		if n := len(a.List()); n > 1 {
			c.Text, c.Answers = "", map[string]control.Words{}
			for i := range n {
				c.Answers[strconv.Itoa(i+1)] = control.Words{answer}
			}
		}
		r.cfg.Events.Put(r.reply(c, how)...)
	}
	r.asks = left
	r.tellAsks()
}

// spare declines the questions that are too many. Each is kept until it is
// answered, as large as a line, and a hostile agent asks for ever.
func (r *Run) spare() {
	for len(r.asks) > maxAsks {
		last := len(r.asks) - 1
		r.cfg.Events.PutOutput(r.decline(r.asks[last].Ask.Ask, "declined", tooMany)...)
		r.asks = r.asks[:last]
	}
}

// decline answers a question with no, and returns how it was closed.
func (r *Run) decline(id, how, why string) []event.Event {
	return r.reply(control.Message{Verb: control.Answer, Ask: id, Deny: true, Text: why}, how)
}

// reply answers a question of the agent's own in nobody's name, and returns how
// it was closed.
func (r *Run) reply(c control.Message, how string) []event.Event {
	speaker, ok := r.decoder.(agent.Speaker)
	if !ok {
		return nil
	}
	events, lines, err := speaker.Answer(c)
	if err != nil {
		return nil // it is not open any more
	}
	for i, e := range events {
		if closed, ok := e.Payload.(event.AskClosed); ok {
			closed.How = how
			events[i] = e.With(closed)
		}
	}
	r.in.put(lines...)
	return events
}

// words is what is asked, for people.
func (a openAsk) words() string {
	return cmp.Or(a.List()[0].Question, "may it use "+cmp.Or(a.Tool, "a tool")+"?")
}

// clean removes the values of secrets from what is not an event.
func (r *Run) clean(text string) string { return string(r.cfg.Secrets.Text([]byte(text))) }
