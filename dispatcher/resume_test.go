package dispatcher_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// attempted lets the next attempt of the only job in the queue end so, with a
// capsule if that is wanted.
func (p pool) attempted(t *testing.T, capsule bool, end jobs.Ended) (jobs.Record, *queue.Claim) {
	t.Helper()
	ctx := jobstest.Context(t)
	claim := jobstest.Claim(t, p.queue, "w1")
	rec := claim.Record()
	src := session.Source{Job: rec.ID, Session: rec.Session, Agent: rec.Agent, Attempt: rec.Attempt, Epoch: claim.Epoch()}
	if _, err := p.log.Writer(ctx, src, event.New(event.JobClaimed{})); err != nil {
		t.Fatal(err)
	}
	if capsule {
		store := jobstest.Store(t, p.nc)
		c := jobs.Capsule{Format: artifact.CapsuleFormat, Job: rec.ID, Epoch: claim.Epoch(), Agent: rec.Agent, Conversation: "x", Turn: 1, Work: &jobs.Salvage{Job: rec.ID, Epoch: claim.Epoch()}}
		var err error
		c.Home, err = store.PutPart(ctx, rec.ID, claim.Epoch(), bytes.NewReader([]byte("talk")))
		if err = errors.Join(err, store.PutCapsule(ctx, c, jobs.Capsule{})); err != nil {
			t.Fatal(err)
		}
	}
	rec, err := claim.Settle(ctx, end, nil)
	if err != nil {
		t.Fatal(err)
	}
	return rec, claim
}

// submitted is a job that waits to be claimed.
func (p pool) submitted(t *testing.T, job jobs.Job) string {
	t.Helper()
	answer, err := p.Submit(jobstest.Context(t), job, "test")
	if err != nil {
		t.Fatal(err)
	}
	return answer.ID
}

func (p pool) record(t *testing.T, id string) jobs.Record {
	t.Helper()
	rec, err := p.queue.Get(jobstest.Context(t), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func more(text string) control.Message {
	return control.Message{ID: jobs.NewID(), Verb: control.Prompt, By: "ann", Text: text}
}

func (p pool) prompts(t *testing.T, id string) (texts []string) {
	t.Helper()
	past, err := p.log.Past(jobstest.Context(t), id, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range past.Prompts {
		texts = append(texts, in.Text)
	}
	return texts
}

// goesOn reports whether who follows a job up to what is stored of it waits for more.
func (p pool) goesOn(t *testing.T, id string) (waits bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(jobstest.Context(t))
	defer cancel()
	opts := session.FollowOptions{Job: id, Caught: func() { waits = true; cancel() }}
	for _, err := range p.log.Follow(ctx, id, 1, opts) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return waits
}

var well = jobs.Ended{Outcome: jobs.Success}

// A prompt brings a finished job back, once however often it comes, with its
// attempts before it; those of several senders are all accepted. What was said
// to an attempt that has run brings nothing back.
func TestAPromptBringsAFinishedJobBack(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	id := p.submitted(t, job())
	first, _ := p.attempted(t, true, well)
	ctx := jobstest.Context(t)
	c := more("two")
	receipt, err := p.Send(ctx, id, c)
	rec := p.record(t, id)
	if err != nil || receipt.State != "accepted" || rec.State != jobs.Pending || rec.Resume != first.Epoch || rec.Counted != 0 || rec.Outcome != "" {
		t.Fatalf("%+v, %v: the job is %s, to go on from %d", receipt, err, rec.State, rec.Resume)
	}
	again, err := p.Send(ctx, id, c)
	if _, wrong := p.Send(ctx, id, more("three")); err != nil || again != receipt || wrong != nil {
		t.Errorf("again: %+v, %v; another: %v", again, err, wrong)
	}
	if got := p.prompts(t, id); strings.Join(got, " ") != "two three" {
		t.Errorf("accepted %q", got)
	}
	if rec, _ := p.attempted(t, true, well); rec.Attempt != 2 || rec.State != jobs.Finished {
		t.Errorf("the next attempt: %+v", rec)
	}
	if again, err = p.Send(ctx, id, c); err != nil || again != receipt || p.record(t, id).State != jobs.Finished {
		t.Errorf("after the attempt that had it: %+v, %v, the job is %s", again, err, p.record(t, id).State)
	}
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			if _, err := p.Send(ctx, id, more("at once")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if rec = p.record(t, id); rec.State != jobs.Pending || rec.Attempt != 2 || len(p.prompts(t, id)) != 8 {
		t.Errorf("the job is %s after attempt %d, with %q", rec.State, rec.Attempt, p.prompts(t, id))
	}
}

// A dispatcher dies between accepting a prompt and bringing the job back: the
// same prompt again does the rest, and so does another one.
func TestAPromptWhoseSenderDied(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		p := open(t, dispatcher.Hooks{})
		id := p.submitted(t, job())
		rec, _ := p.attempted(t, true, well)
		ctx := jobstest.Context(t)
		if err := p.log.Finish(ctx, rec, rec.Result()); err != nil {
			t.Fatal(err)
		}
		c := more("two")
		if _, _, err := p.log.Accept(ctx, rec, c); err != nil {
			t.Fatal(err)
		}
		if !again {
			c = more("three")
		}
		if _, err := p.Send(ctx, id, c); err != nil || p.record(t, id).State != jobs.Pending {
			t.Errorf("sent again %v: %v, the job is %s", again, err, p.record(t, id).State)
		}
		if got := p.prompts(t, id); got[0] != "two" || again != (len(got) == 1) {
			t.Errorf("accepted %q", got)
		}
		// And between the record and its message.
		if _, err := p.Send(ctx, id, c); err != nil {
			t.Error(err)
		}
		p.attempted(t, false, well)
	}
}

// A job of which nothing is kept to go on with stays finished, and says why.
func TestAJobThatCannotGoOn(t *testing.T) {
	t.Parallel()
	refused := func(err error, says string) {
		t.Helper()
		if e, ok := errors.AsType[*control.RefusedError](err); !ok || e.Code != control.Finished || !strings.Contains(e.Message, says) {
			t.Errorf("got %v, want that it is refused: %s", err, says)
		}
	}
	p := open(t, dispatcher.Hooks{})
	ctx := jobstest.Context(t)
	id := p.submitted(t, job())
	p.attempted(t, false, well)
	_, err := p.Send(ctx, id, more("two"))
	refused(err, "nothing is kept of a conversation")
	_, err = p.Send(ctx, id, control.Message{ID: jobs.NewID(), Verb: control.Stop})
	refused(err, "only a prompt")

	spends := job()
	spends.Budget.USD = 1
	gone := p.submitted(t, spends)
	rec, claim := p.attempted(t, true, jobs.AgentFailed.Ended("no"))
	store := jobstest.Store(t, p.nc)
	list, err := store.Capsules(ctx, gone)
	if err != nil {
		t.Fatal(err)
	}
	list[0].Home.Name = "part." + strings.Repeat("0", 64)
	if err := store.PutCapsule(ctx, list[0], jobs.Capsule{}); err != nil {
		t.Fatal(err)
	}
	_, err = p.Send(ctx, gone, more("two"))
	refused(err, "the capsule is broken")
	_, err = p.Resume(ctx, gone, nil, jobs.Allowance{USD: 2})
	refused(err, "the capsule is broken")
	prompt := more("two")
	_, err = p.Resume(ctx, gone, &prompt, jobs.Allowance{USD: 2})
	refused(err, "the capsule is broken")
	if now := p.record(t, gone); now.State != jobs.Finished || now.Raised != (jobs.Allowance{}) || now.Epoch != claim.Epoch() || len(p.prompts(t, gone)) > 0 {
		t.Errorf("it is %s, and was %s; accepted %q", now.State, rec.State, p.prompts(t, gone))
	}
}

// Resume brings a job back that has failed, and retry afterwards starts it over.
// One that has succeeded needs a prompt.
func TestResumeAndRetry(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	ctx := jobstest.Context(t)
	id := p.submitted(t, job())
	if _, err := p.Resume(ctx, id, nil, jobs.Allowance{}); err == nil || !strings.Contains(err.Error(), "only a finished job") {
		t.Errorf("before it began: %v", err)
	}
	first, _ := p.attempted(t, true, jobs.AgentFailed.Ended("no"))
	rec, err := p.Resume(ctx, id, nil, jobs.Allowance{})
	if err != nil || rec.State != jobs.Pending || rec.Resume != first.Epoch || rec.Since != 0 {
		t.Fatalf("%+v, %v", rec, err)
	}
	if letters, err := p.queue.DeadLetters().List(ctx); err != nil || len(letters) > 0 {
		t.Errorf("dead letters %v, %v", letters, err)
	}
	second, _ := p.attempted(t, false, jobs.TurnLimit.Ended("no"))
	if rec, err = p.Retry(ctx, id, "cli", false); err != nil || rec.Resume != 0 || rec.Since != second.Epoch {
		t.Errorf("retry: %+v, %v", rec, err)
	}
	if !p.goesOn(t, id) {
		t.Error("who waits for the job takes the end of its second attempt for its own")
	}
	p.attempted(t, true, well)
	if _, err := p.Resume(ctx, id, nil, jobs.Allowance{}); err == nil || !strings.Contains(err.Error(), "give it a prompt") {
		t.Errorf("after a success: %v", err)
	}
	c := more("and more")
	if rec, err = p.Resume(ctx, id, &c, jobs.Allowance{}); err != nil || rec.State != jobs.Pending || rec.Attempt != 3 {
		t.Errorf("with a prompt: %+v, %v", rec, err)
	}
}

// A fork has copies of all that it needs before it may be claimed; what cannot be
// forked is refused.
func TestFork(t *testing.T) {
	t.Parallel()
	p := open(t, dispatcher.Hooks{})
	ctx := jobstest.Context(t)
	origin := job()
	origin.Isolation, origin.Repo.URL = jobs.IsolationWorktree, "/src/app"
	id := p.submitted(t, origin)
	refused := func(change func(j *jobs.Job), says string) {
		t.Helper()
		j := origin
		j.Fork = id
		change(&j)
		_, err := p.Submit(ctx, j, "test")
		if invalid, ok := errors.AsType[*jobs.InvalidError](err); !ok || invalid.Fields[0].Field != "fork" || !strings.Contains(invalid.Fields[0].Reason, says) {
			t.Errorf("got %v, want that it is refused: %s", err, says)
		}
	}
	refused(func(*jobs.Job) {}, "nothing is kept of a conversation")
	rec, _ := p.attempted(t, true, well)
	refused(func(j *jobs.Job) { j.Fork = jobs.NewID() }, "there is no job")
	refused(func(j *jobs.Job) { j.Repo.URL = "/src/other" }, "another repository")
	refused(func(j *jobs.Job) { j.Agent = jobs.Agent{Name: "claude"} }, "used agent command")
	refused(func(j *jobs.Job) { j.Isolation = jobs.IsolationNone }, "two jobs would work in one directory")
	refused(func(j *jobs.Job) { j.Repo.Commit = strings.Repeat("a", 40) }, "not from repo.commit")
	refused(func(j *jobs.Job) { j.FromSalvage = id }, "exclude each other")

	j := origin
	j.Fork, j.Key = id, "once"
	fork := p.submitted(t, j)
	if again := p.submitted(t, j); again != fork {
		t.Errorf("the same key made %s and %s", fork, again)
	}
	store := jobstest.Store(t, p.nc)
	list, err := store.Capsules(ctx, fork)
	if err != nil || len(list) != 1 || list[0].Epoch != 0 || list[0].Job != fork {
		t.Fatalf("the fork has %+v, %v", list, err)
	}
	if err := store.Usable(ctx, list[0], p.record(t, fork)); err != nil {
		t.Error(err)
	}
	if now := p.record(t, id); now.State != jobs.Finished || now.Epoch != rec.Epoch {
		t.Errorf("its origin is %+v", now)
	}
}
