package dispatcher_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// parked is a job whose attempt has ended with these questions.
func (p *pool) parked(t *testing.T, interactive bool, ids ...string) (jobs.Record, *queue.Claim) {
	t.Helper()
	ctx, j := jobstest.Context(t), job()
	j.Agent.Interactive = interactive
	sent, err := p.Submit(ctx, j, "test")
	if err != nil {
		t.Fatal(err)
	}
	claim := jobstest.Claim(t, p.queue, "w1")
	src := session.Source{Job: sent.ID, Session: sent.Session, Attempt: claim.Record().Attempt, Epoch: claim.Epoch()}
	log, err := p.log.Writer(ctx, src, event.New(event.JobClaimed{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		questions := []byte(`[{"question":"Paint it?","options":[{"label":"Red"},{"label":"Blue"}]}]`)
		err = errors.Join(err, log.Append(ctx, event.New(event.AskOpened{Ask: id, Type: "question", Questions: questions})))
	}
	rec, parked := claim.Park(ctx, "Paint it?", time.Now().Add(time.Hour))
	if err := errors.Join(err, log.Append(ctx, event.New(event.JobWaiting{})), parked); err != nil {
		t.Fatal(err)
	}
	return rec, claim
}

func refusedAs(t *testing.T, err error, code control.Refusal, says string) {
	t.Helper()
	refused, ok := errors.AsType[*control.RefusedError](err)
	if !ok || refused.Code != code || !strings.Contains(refused.Message, says) {
		t.Errorf("got %v, want that it is refused: %s %s", err, code, says)
	}
}

func answerWith(option string) control.Message {
	return control.Message{ID: jobs.NewID(), Verb: control.Answer, By: "ann", Options: []string{option}}
}

// A parked job is answered, and goes on once all that it asks is. Each message
// counts once, what does not fit is refused, and of several answers the first
// one counts.
func TestAnswerAParkedJob(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	ctx := jobstest.Context(t)
	rec, _ := p.parked(t, true, "a", "b")
	for c, says := range map[*control.Message]string{
		{Verb: control.Interrupt}:                                "is parked",
		{Verb: control.Answer, Options: []string{"Red"}}:         "2 questions are open",
		{Verb: control.Answer, Ask: "c", Text: "x"}:              "is not open",
		{Verb: control.Answer, Ask: "a", Options: []string{"x"}}: "Red, Blue",
	} {
		c.ID = jobs.NewID()
		code := map[string]control.Refusal{"is parked": control.NotReady, "is not open": control.Nothing}[says]
		if code == "" {
			code = control.Unfit
		}
		_, err := p.Send(ctx, rec.ID, *c)
		refusedAs(t, err, code, says)
	}
	more := control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: "and the door"}
	first := answerWith("Red")
	first.Ask = "a"
	for _, c := range []control.Message{more, more, first, first} {
		if r, err := p.Send(ctx, rec.ID, c); err != nil || r.ID != c.ID || r.Attempt != 1 || r.State != control.Accepted {
			t.Errorf("%s: %+v, %v", c.Verb, r, err)
		}
	}
	again := answerWith("Blue")
	again.Ask = "a"
	_, err := p.Send(ctx, rec.ID, again)
	refusedAs(t, err, control.Nothing, "answered already")
	if got, err := p.queue.Get(ctx, rec.ID); err != nil || !got.Asking() {
		t.Fatalf("with one of two questions open it is %+v, %v", got, err)
	}
	if _, err := p.Send(ctx, rec.ID, answerWith("2")); err != nil {
		t.Fatal(err)
	}
	if got := jobstest.Claim(t, p.queue, "w2").Record(); got.ID != rec.ID || got.Attempt != 2 {
		t.Fatalf("claimed %+v", got)
	}
	past, err := p.log.Past(ctx, rec.Session, rec.ID)
	if err != nil || len(past.Receipts) != 3 || len(past.Prompts) != 1 || len(past.Asks) != 2 || !past.Parked {
		t.Fatalf("the log tells %+v, %v", past, err)
	}
	if a, b := past.Asks[0].Said(), past.Asks[1].Said(); a["Paint it?"] != "Red" || b["Paint it?"] != "Blue" {
		t.Errorf("answered %v and %v", a, b)
	}
}

// Of many answers at once one counts.
func TestOneAnswerCounts(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	rec, _ := p.parked(t, false, "a")
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { _, errs[i] = p.Send(jobstest.Context(t), rec.ID, answerWith([]string{"Red", "Blue"}[i%2])) })
	}
	all.Wait()
	answered := 0
	for _, err := range errs {
		if err == nil {
			answered++
		} else if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.Nothing && refused.Code != control.NotReady {
			t.Errorf("got %v", err)
		}
	}
	past, err := p.log.Past(t.Context(), rec.Session, rec.ID)
	if answered != 1 || err != nil || len(past.Receipts) != 1 {
		t.Errorf("%d were answered, %+v, %v", answered, past, err)
	}
}

// A dispatcher that accepts an answer may die before it wakes the job. The next
// leader finds that.
func TestAnAnswerThatNobodyActedOn(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	rec, _ := p.parked(t, false, "a")
	if _, _, err := p.log.Accept(jobstest.Context(t), rec, answerWith("Red")); err != nil {
		t.Fatal(err)
	}
	other, _ := p.parked(t, false, "a") // which has no answer
	p.serve(t)
	if got := jobstest.Claim(t, p.queue, "w2").Record(); got.ID != rec.ID {
		t.Errorf("claimed %+v", got)
	}
	if got, err := p.queue.Get(t.Context(), other.ID); err != nil || !got.Asking() {
		t.Errorf("the other one is %+v, %v", got, err)
	}
}

// To stop a parked job is to cancel it; one that takes no prompts says so.
func TestStopAParkedJob(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	rec, _ := p.parked(t, false, "a")
	_, err := p.Send(jobstest.Context(t), rec.ID, control.Message{ID: jobs.NewID(), Verb: control.Prompt, Text: "more"})
	refusedAs(t, err, control.Cannot, "takes no prompts")
	if _, err := p.Send(jobstest.Context(t), rec.ID, control.Message{ID: jobs.NewID(), Verb: control.Stop, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	got, err := p.queue.Get(t.Context(), rec.ID)
	if err != nil || got.Outcome != jobs.Cancellation || !strings.Contains(got.Message, "ann") {
		t.Errorf("ended as %+v, %v", got, err)
	}
}
