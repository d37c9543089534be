package agentrun

import (
	"cmp"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/inside"
)

// openQuestions are those of the agent, and of the programs in its jail.
type openQuestions struct {
	all      []openQuestion
	programs map[string]programQuestion // those of all that programs ask, by id
	recorded *jobs.OpenAsk              // what the record tells
}

// An openQuestion has no answer yet.
type openQuestion struct {
	control.Ask
	since time.Time
}

// words is what is asked, for people.
func (q openQuestion) words() string {
	return cmp.Or(q.List()[0].Question, "may it use "+cmp.Or(q.Tool, "a tool")+"?")
}

// A programQuestion is one of a program in the jail.
type programQuestion struct {
	question control.Question
	answer   chan inside.Answer // has room for one
	bounded  bool               // the program waits for so long, and no longer
	taken    bool               // an answer is being stored
}

// ids are those of the questions that are open.
func (q *openQuestions) ids() (ids []string) {
	for _, open := range q.all {
		ids = append(ids, open.Ask.Ask)
	}
	return ids
}

// note keeps the list of open questions, and reports whether it has changed. One that is asked
// once more is the same question.
func (q *openQuestions) note(events []event.Event, now time.Time) (changed bool) {
	for _, e := range events {
		switch d := e.Payload.(type) {
		case event.AskOpened:
			if !slices.ContainsFunc(q.all, func(open openQuestion) bool { return open.Ask.Ask == d.Ask }) {
				q.all = append(q.all, openQuestion{control.Ask(d), now})
			}
		case event.AskClosed:
			q.all = slices.DeleteFunc(q.all, func(open openQuestion) bool { return open.Ask.Ask == d.Ask })
		default:
			continue
		}
		changed = true
	}
	return changed
}

// record returns what the job's record is to tell: the oldest question that is open. It
// reports whether the record tells something else by now. Clean removes what must not be
// in a record.
func (q *openQuestions) record(clean func(string) string) (open *jobs.OpenAsk, changed bool) {
	if len(q.all) > 0 {
		first := q.all[0]
		open = &jobs.OpenAsk{
			Ask: first.Ask.Ask, Type: first.Type, Question: clean(first.words()), Since: first.since.UTC(), Open: len(q.all),
		}
	}
	was := q.recorded
	q.recorded = open
	return open, (was == nil) != (open == nil) || open != nil && *was != *open
}

// oldest is when the first question was asked of those that are open.
func (q *openQuestions) oldest() time.Time {
	oldest := q.all[0].since
	for _, open := range q.all {
		if open.since.Before(oldest) {
			oldest = open.since
		}
	}
	return oldest
}

// removeOlder takes those off the list that have been open for so long.
func (q *openQuestions) removeOlder(now time.Time, limit time.Duration) (old []openQuestion) {
	var left []openQuestion
	for _, open := range q.all {
		if now.Sub(open.since) < limit {
			left = append(left, open)
		} else {
			old = append(old, open)
		}
	}
	q.all = left
	return old
}

// removeLast takes the youngest off the list.
func (q *openQuestions) removeLast() openQuestion {
	last := len(q.all) - 1
	youngest := q.all[last]
	q.all = q.all[:last]
	return youngest
}

// add notes that a program waits for the answer to a question.
func (q *openQuestions) add(id string, p programQuestion) {
	if q.programs == nil {
		q.programs = map[string]programQuestion{}
	}
	q.programs[id] = p
}

// waiting returns the question of a program, if it is one and no answer is being stored.
func (q *openQuestions) waiting(id string) bool {
	p, ok := q.programs[id]
	return ok && !p.taken
}

// settle gives a program its answer. It does not block: there is one answer to a question, and
// the channel has room for it.
func (q *openQuestions) settle(id string, a inside.Answer) {
	if p, ok := q.programs[id]; ok {
		delete(q.programs, id)
		p.answer <- a
	}
}

// take finds out what a message answers to a program, whose question nothing else answers from
// then on. An empty id means that it is for the agent.
func (q *openQuestions) take(c control.Message) (id string, a inside.Answer, err error) {
	id = c.Ask
	if id == "" && len(q.programs) > 0 {
		if id, err = c.Meant(q.ids()); err != nil {
			return "", a, err
		}
	}
	p, ok := q.programs[id]
	if !ok {
		return "", a, nil
	}
	a = inside.Answer{How: "declined", Text: c.Text}
	if !c.Deny {
		answers, err := c.Fit([]control.Question{p.question})
		if err != nil {
			return "", a, err
		}
		a = inside.Answer{How: "answered", Text: answers[p.question.Question]}
	}
	p.taken = true
	q.programs[id] = p
	return id, a, nil
}
