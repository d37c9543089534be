package session_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// past is a session whose job has finished in its first attempt.
type past struct {
	testing.TB
	log *session.Log
	rec jobs.Record
}

func newPast(tb testing.TB) past {
	tb.Helper()
	at := time.Now().UTC()
	p := past{tb, jobstest.Log(tb, jobstest.Start(tb).Connect()), jobs.Record{ID: jobs.NewID(), Attempt: 1, State: jobs.Finished, Outcome: jobs.Success, Finished: &at}}
	p.rec.Session = p.rec.ID
	p.claimed(1)
	p.must(p.log.Finish(tb.Context(), p.rec, p.rec.Result()))
	return p
}

func (p past) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p past) claimed(attempt int) {
	p.Helper()
	src := session.Source{Job: p.rec.ID, Session: p.rec.Session, Attempt: attempt}
	_, err := p.log.Writer(p.Context(), src, event.New(event.JobClaimed{}))
	p.must(err)
}

func (p past) accept(c control.Message) (control.Receipt, bool) {
	p.Helper()
	r, past, err := p.log.Accept(p.Context(), p.rec, c)
	p.must(err)
	return r, slices.Contains(past.Last, c.ID)
}

func said(text string) control.Message {
	return control.Message{ID: jobs.NewID(), Verb: control.Prompt, By: "ann", Text: text}
}

func (p past) kinds() (kinds []jobs.Kind) {
	p.Helper()
	for e, err := range p.log.Read(p.Context(), p.rec.Session, 1) {
		p.must(err)
		if kinds = append(kinds, e.Kind); e.Seq != uint64(len(kinds)) {
			p.Errorf("event %d has number %d", len(kinds), e.Seq)
		}
	}
	return kinds
}

// A message is stored once, however often it comes, for the attempt that
// follows; and once that has begun nothing is accepted past it.
func TestAcceptIsForTheNextAttempt(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	first := said("one")
	r, open := p.accept(first)
	if again, still := p.accept(first); again != r || !open || !still || r.State != "accepted" || r.Attempt != 1 {
		t.Errorf("accepted %+v (%v), then %+v (%v)", r, open, again, still)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { p.accept(said("more")) })
	}
	all.Wait()
	p.claimed(2)
	if again, still := p.accept(first); again != r || still {
		t.Errorf("after the next attempt began: %+v, open %v", again, still)
	}
	_, _, err := p.log.Accept(t.Context(), p.rec, said("late"))
	if refused, ok := errors.AsType[*control.RefusedError](err); !ok || refused.Code != control.NotReady {
		t.Errorf("past the next attempt: %v", err)
	}
	if got := p.kinds(); len(got) != 12 || got[11] != jobs.JobClaimed {
		t.Errorf("the session has %v", got)
	}
}

// What an attempt accepted while it ran does not bring the job back when it is
// sent again.
func TestWhatWasAcceptedBeforeTheEndIsNotOpen(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.claimed(2)
	c := said("live")
	p.rec.Attempt = 2
	p.accept(c)
	at := time.Now().UTC()
	p.rec.Finished = &at
	p.must(p.log.Finish(t.Context(), p.rec, p.rec.Result()))
	if _, open := p.accept(c); open {
		t.Error("a message that the attempt has had would begin another one")
	}
}

// A message whose sender died before the job was brought back keeps no follower
// waiting; one whose job is back does. The terminal event stays the only one.
func TestFollowersOfAReopenedJob(t *testing.T) {
	t.Parallel()
	p := newPast(t)
	p.accept(said("one"))
	follow := func(from uint64, most int) (n int) {
		ctx := jobstest.Context(t)
		for _, err := range p.log.Follow(ctx, p.rec.Session, from, session.FollowOptions{Job: p.rec.ID}) {
			p.must(err)
			if n++; n == most {
				break
			}
		}
		if ctx.Err() != nil {
			t.Errorf("from %d: it waits for ever", from)
		}
		return n
	}
	if n, later := follow(1, 0), follow(4, 0); n != 2 || later != 0 {
		t.Errorf("before the job is back: %d events, and %d of those behind", n, later)
	}
	p.must(errors.Join(p.log.Reopen(t.Context(), p.rec, "ann"), p.log.Reopen(t.Context(), p.rec, "ann")))
	if n := follow(1, 4); n != 4 {
		t.Errorf("when the job is back: %d events", n)
	}
	p.must(p.log.Finish(t.Context(), p.rec, p.rec.Result())) // late
	p.claimed(2)
	p.must(errors.Join(p.log.Finish(t.Context(), p.rec, p.rec.Result()), p.log.Reopen(t.Context(), p.rec, "ann")))
	if got := p.kinds(); !slices.Equal(got, []jobs.Kind{jobs.JobClaimed, jobs.JobFinished, jobs.InputState, jobs.JobReopened, jobs.JobClaimed}) {
		t.Errorf("the session has %v", got)
	}
}
