package agentrun

import (
	"strconv"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// maxAsks is how many questions of an agent may be open at once.
const maxAsks = 16

// tooMany is what the agent hears whose questions are more.
const tooMany = "Too many questions are open. Wait for the answers."

// questions keep the list of open ones, tell the record of it, and close those that are not
// answered by a user.
type questions struct {
	open      openQuestions
	cfg       Config
	in        *input
	news      signal
	recipient recipient
	stamp     func(event.Event) event.Event // with the agent's turn
}

// closeProgram closes a question of a program, and gives the program its answer.
func (q *questions) closeProgram(id, how string, a inside.Answer) {
	e := q.closed(id, how)
	q.cfg.Events.Put(e)
	q.note([]event.Event{e})
	q.open.settle(id, a)
}

// closed says that a question of a program is not open any more.
func (q *questions) closed(id, how string) event.Event {
	return q.stamp(event.Make(event.AskClosed{Ask: id, How: how}))
}

// note keeps the list of open questions, and the one that the record tells: people ask
// why the job does not end.
func (q *questions) note(events []event.Event) {
	if q.open.note(events, time.Now()) {
		q.news.set() // there is another time to look
	}
	q.record()
}

// record tells the record where it has to say something else.
func (q *questions) record() {
	open, changed := q.open.record(func(text string) string { return string(q.cfg.Secrets.Text([]byte(text))) })
	if changed {
		q.cfg.Lease.Ask(open)
		q.cfg.Lease.Renew()
	}
}

// lapse closes the questions that have been open for so long without an answer; the job says
// what that means.
func (q *questions) lapse(now time.Time, limit time.Duration) {
	for _, old := range q.open.removeOlder(now, limit) {
		id := old.Ask.Ask
		if q.cfg.Job.Ask.Fail {
			q.cfg.End(verdict.Ended(jobs.Unanswered, "its question was not answered: %s", old.words()))
		}
		answer := q.cfg.Job.Ask.Default
		_, program := q.open.programs[id]
		switch {
		case q.open.waiting(id) && answer != "":
			q.closeProgram(id, "default", inside.Answer{How: "answered", Text: answer})
		case q.open.waiting(id):
			q.closeProgram(id, "expired", inside.Unanswered)
		case program: // its answer is being stored
		case answer == "" || old.Type != "question":
			q.cfg.Events.Put(q.decline(id, "expired", "")...)
		default:
			q.cfg.Events.Put(q.answer(defaultAnswer(old, answer), "default")...)
		}
	}
	q.record()
}

// defaultAnswer answers each part of a question with the same text.
func defaultAnswer(q openQuestion, text string) control.Message {
	c := control.Message{Verb: control.Answer, Ask: q.Ask.Ask, Text: text}
	if n := len(q.List()); n > 1 {
		c.Text, c.Answers = "", map[string]control.Words{}
		for i := range n {
			c.Answers[strconv.Itoa(i+1)] = control.Words{text}
		}
	}
	return c
}

// decided gives the agent the answers to requests for permission that were decided when the
// session was parked. Where the agent offers other answers by now, a person is asked.
func (q *questions) decided(events []event.Event) {
	for _, e := range events {
		opened, ok := e.Payload.(event.AskOpened)
		if !ok || opened.Type != "permission" {
			continue
		}
		c, ok := q.cfg.Decided(control.Ask(opened))
		if !ok {
			continue
		}
		if closed, lines, err := q.recipient.lines(c); err == nil {
			q.cfg.Events.PutOutput(closed...)
			q.note(closed)
			q.in.put(lines...)
		}
	}
}

// declineExcess declines the questions that are too many. Each is kept until it is
// answered, as large as a line, and a hostile agent asks for ever.
func (q *questions) declineExcess() {
	for len(q.open.all) > maxAsks {
		q.cfg.Events.PutOutput(q.decline(q.open.removeLast().Ask.Ask, "declined", tooMany)...)
	}
}

// decline answers a question of the agent's own with no, and returns how it was closed.
func (q *questions) decline(id, how, why string) []event.Event {
	return q.answer(control.Message{Verb: control.Answer, Ask: id, Deny: true, Text: why}, how)
}

// answer answers a question of the agent's own for the pool, and returns how it was closed.
func (q *questions) answer(c control.Message, how string) []event.Event {
	events, lines := q.recipient.answer(c, how)
	q.in.put(lines...)
	return events
}
