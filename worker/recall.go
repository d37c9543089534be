package worker

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/dialog"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/inside"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// remember reads what was said in earlier attempts, and closes the questions
// that they have left open.
func (a *attempt) remember(ctx context.Context) error {
	a.past.Job = a.rec.ID
	for e, err := range a.cfg.Log.Read(ctx, a.rec.Session, 1) {
		if err != nil {
			return verdict.Failed(jobs.StoreFailed, "read what the session was told before", err)
		}
		if e.Attempt < a.rec.Attempt {
			a.past.Read(e)
		}
	}
	now := time.Now()
	for i := range a.past.Asks {
		asked := &a.past.Asks[i]
		if asked.How != "" {
			continue
		}
		asked.How = a.fate(*asked, now)
		a.events.put(event.Make(event.AskClosed{Ask: asked.Ask.Ask, How: asked.How}))
		if asked.How == "expired" && a.job.Ask.Fail {
			return verdict.Ended(jobs.Unanswered, "nobody has answered its question: %s", asked.List()[0].Question)
		}
	}
	return nil
}

// fate says what has become of a question that an earlier attempt left open. A
// parked job was woken by its answers or else by its time.
func (a *attempt) fate(asked dialog.Asked, now time.Time) string {
	woken := a.past.Parked && a.claim.Previous() == nil && asked.Attempt == a.past.Attempt
	switch {
	case asked.Answer != nil && asked.Answer.Deny:
		return "declined"
	case asked.Answer != nil:
		return "answered"
	case asked.Type != "question" || !woken && now.Sub(asked.Opened) < a.job.Ask.Limit():
		return "withdrawn"
	case a.job.Ask.Default != "":
		return "default"
	}
	return "expired"
}

// bring finds out what this attempt's agent and its programs are to be told of
// the questions that were asked before: c is what the agent goes on with, nil if
// it begins anew. What had its answer by then the conversation knows.
func (a *attempt) bring(c *jobs.Capsule) {
	a.replies, a.recalls = nil, map[string][]inside.Answer{}
	for _, asked := range a.past.Asks {
		answer, ok := a.answerTo(asked)
		if !ok || c != nil && !slices.Contains(c.Asks, asked.Ask.Ask) && asked.Opened.Before(c.Stored) {
			continue
		}
		key := a.keyOf(asked.List()[0])
		a.recalls[key] = append(a.recalls[key], answer)
		if c == nil || slices.Contains(c.Asks, asked.Ask.Ask) {
			a.replies = append(a.replies, a.replyTo(asked))
		}
	}
}

// answerTo is what a program gets that asks again.
func (a *attempt) answerTo(asked dialog.Asked) (inside.Answer, bool) {
	switch asked.How {
	case "answered":
		return inside.Answer{How: asked.How, Text: asked.Said()[asked.List()[0].Question]}, true
	case "declined":
		return inside.Answer{How: asked.How, Text: asked.Answer.Text}, true
	case "default":
		return inside.Answer{How: "answered", Text: a.job.Ask.Default}, true
	case "expired":
		return nobody, true
	}
	return inside.Answer{}, false
}

// replyTo is what an agent is told.
func (a *attempt) replyTo(asked dialog.Asked) control.Reply {
	reply := control.Reply{Declined: asked.How == "declined" || asked.How == "expired"}
	if asked.How == "declined" {
		reply.Why = asked.Answer.Text
	}
	said := asked.Said()
	for _, q := range asked.List() {
		answer := said[q.Question]
		if asked.How == "default" {
			answer = a.job.Ask.Default
		}
		reply.Questions = append(reply.Questions, q.Question)
		reply.Answers = append(reply.Answers, answer)
	}
	return reply
}

// keyOf tells one question from another, as the log has it.
func (a *attempt) keyOf(q control.Question) string {
	key, _ := json.Marshal(q) // strings
	return a.clean(string(key))
}

// recall answers a program that asks what was asked in an earlier attempt, in
// the same order.
func (r *agentRun) recall(q control.Question) (inside.Answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := r.keyOf(q)
	known := r.recalls[key]
	if len(known) == 0 {
		return inside.Answer{}, false
	}
	r.recalls[key] = known[1:]
	return known[0], true
}
