package conversation

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Questions are those of earlier attempts, with their outcomes.
type Questions struct {
	cfg     *Config
	past    dialog.Past
	replies []control.Reply // for an agent that continues its conversation

	mu sync.Mutex
	// recalls are the answers for programs that ask again, by the question.
	recalls map[string][]inside.Answer
	// decided are the answers to requests for permission, by the tool and its input.
	decided map[string][]control.Message
}

// read reads the messages of earlier attempts, and closes the questions that they have
// left open.
func (q *Questions) read(ctx context.Context, log *session.Log) (prompts []control.Input, err error) {
	for e, err := range log.Read(ctx, q.cfg.Record.Session, 1) {
		if err != nil {
			return nil, verdict.Failed(jobs.StoreFailed, "read what the session was told before", err)
		}
		if e.Attempt < q.cfg.Record.Attempt {
			q.past.Read(e)
		}
	}
	now := time.Now()
	for i := range q.past.Asks {
		asked := &q.past.Asks[i]
		if asked.How != "" {
			continue
		}
		asked.How = q.fate(*asked, now)
		q.cfg.Tell(event.Make(event.AskClosed{Ask: asked.Ask.Ask, How: asked.How}))
		if asked.How == "expired" && q.cfg.Job.Ask.Fail {
			return nil, verdict.Ended(jobs.Unanswered, "its question was not answered: %s", asked.List()[0].Question)
		}
	}
	return q.past.Prompts, nil
}

// fate returns the outcome of a question that an earlier attempt left open. Its answers
// woke a parked job, or else its time did.
func (q *Questions) fate(asked dialog.Asked, now time.Time) string {
	woken := q.past.Parked && !q.cfg.Lost && asked.Attempt == q.past.Attempt
	switch {
	case asked.Denied():
		return "declined"
	case asked.Answer != nil:
		return "answered"
	case !asked.Waits() || !woken && now.Sub(asked.Opened) < q.cfg.Job.Ask.Limit():
		return "withdrawn"
	case q.cfg.Job.Ask.Default != "" && asked.Type == "question":
		return "default"
	}
	return "expired"
}

// bring finds the answers for this attempt's agent and its programs to earlier
// questions: from is the capsule from which the agent continues, nil if it begins anew.
// The conversation already has the answers from before the capsule.
func (q *Questions) bring(from *jobs.Capsule) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.replies, q.recalls, q.decided = nil, map[string][]inside.Answer{}, map[string][]control.Message{}
	for _, asked := range q.past.Asks {
		answer, ok := q.answerTo(asked)
		if !ok || from != nil && !slices.Contains(from.Asks, asked.Ask.Ask) && asked.Opened.Before(from.Stored) {
			continue
		}
		switch {
		case asked.Type != "permission":
			key := q.keyOf(asked.List()[0])
			q.recalls[key] = append(q.recalls[key], answer)
		case from == nil:
			continue // it was for what the agent was about to do in a conversation that is gone
		case asked.Answer != nil: // the agent asks again
			if key, ok := q.permissionKey(asked.Ask); ok {
				q.decided[key] = append(q.decided[key], asked.Answer.Answer())
			}
		}
		if from == nil || slices.Contains(from.Asks, asked.Ask.Ask) {
			q.replies = append(q.replies, q.replyTo(asked))
		}
	}
}

// answerTo is the answer for a program that asks again.
func (q *Questions) answerTo(asked dialog.Asked) (inside.Answer, bool) {
	switch asked.How {
	case "answered":
		return inside.Answer{How: asked.How, Text: asked.Said()[asked.List()[0].Question]}, true
	case "declined":
		return inside.Answer{How: asked.How, Text: asked.Answer.Text}, true
	case "default":
		return inside.Answer{How: "answered", Text: q.cfg.Job.Ask.Default}, true
	case "expired":
		return inside.Unanswered, true
	}
	return inside.Answer{}, false
}

// replyTo is the reply for an agent.
func (q *Questions) replyTo(asked dialog.Asked) control.Reply {
	reply := control.Reply{Declined: asked.How == "declined" || asked.How == "expired"}
	if asked.Type == "permission" {
		reply.Tool, reply.Input = asked.Tool, asked.Input
	}
	if asked.How == "declined" {
		reply.Why = asked.Answer.Text
	}
	said := asked.Said()
	for _, question := range asked.List() {
		answer := said[question.Question]
		if asked.How == "default" {
			answer = q.cfg.Job.Ask.Default
		}
		reply.Questions = append(reply.Questions, question.Question)
		reply.Answers = append(reply.Answers, answer)
	}
	return reply
}

// keyOf identifies a question by its text, as the log has it.
func (q *Questions) keyOf(question control.Question) string {
	key, _ := json.Marshal(question) // strings
	return string(q.cfg.Secrets.Text(key))
}

// permissionKey identifies a request for permission by its tool and its input, as the log has
// them. One without an input cannot be known again.
func (q *Questions) permissionKey(a control.Ask) (key string, ok bool) {
	in := json.NewDecoder(bytes.NewReader(a.Input))
	in.UseNumber()
	var input any
	if in.Decode(&input) != nil || input == nil {
		return "", false
	}
	whole, err := json.Marshal([]any{a.Tool, input})
	return string(q.cfg.Secrets.Text(whole)), err == nil
}

// Decided answers a request for permission that an earlier attempt has made, for the same tool
// with the same input, and which was decided since: each decision is for one request.
func (q *Questions) Decided(a control.Ask) (control.Message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key, ok := q.permissionKey(a)
	known := q.decided[key]
	if !ok || len(known) == 0 {
		return control.Message{}, false
	}
	q.decided[key] = known[1:]
	answer := known[0]
	answer.Ask = a.Ask
	return answer, true
}

// Receipts are those of the messages that earlier attempts have accepted.
func (q *Questions) Receipts() []control.Receipt { return q.past.Receipts }

// Recall answers a program that repeats the questions of an earlier attempt, in the
// same order.
func (q *Questions) Recall(question control.Question) (inside.Answer, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	key := q.keyOf(question)
	known := q.recalls[key]
	if len(known) == 0 {
		return inside.Answer{}, false
	}
	q.recalls[key] = known[1:]
	return known[0], true
}

// Replies are for an agent whose questions were asked before, in the conversation that
// it continues or in another one.
func (q *Questions) Replies() []control.Reply { return q.replies }
