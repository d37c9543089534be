package purge_test

import (
	"bytes"
	"errors"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/purge"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// Nothing brings a job back whose purge was interrupted, and nothing writes of it again once
// it is done: not the worker that has just settled it, nor one that repeats the end.
func TestAPurgedJobStaysPurged(t *testing.T) {
	t.Parallel()
	ctx, nc := jobstest.Context(t), jobstest.Start(t).Connect()
	q, log, store := jobstest.Queue(t, nc, queue.Config{}), jobstest.Log(t, nc), jobstest.Store(t, nc)
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	w, err := log.Writer(ctx, session.Source{Job: rec.ID, Session: rec.Session, Agent: "command", Attempt: 1, Epoch: c.Epoch()}, event.New(event.JobClaimed{}))
	must(t, err)
	_, err = store.Put(ctx, rec.ID, c.Epoch(), "changes.patch", bytes.NewReader(make([]byte, 600_000)))
	must(t, err)
	must(t, store.PutResult(ctx, c.Epoch(), jobs.Result{Job: rec.ID}))
	p := purge.New(q, store)
	if _, err := p.Session(ctx, rec.Session, []jobs.Record{c.Record()}); !errors.Is(err, jobs.ErrNotFinished) {
		t.Errorf("a job that runs: %v", err)
	}
	rec, err = c.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
	must(t, err)

	must(t, purge.Begin(p, ctx, rec.ID))
	if _, err := q.Retry(ctx, rec.ID, false, nil); !errors.Is(err, jobs.ErrPurged) {
		t.Errorf("retry: %v", err)
	}
	if _, err := q.Resume(ctx, rec, c.Epoch()); !errors.Is(err, jobs.ErrPurged) {
		t.Errorf("resume: %v", err)
	}
	marked, err := p.Find(ctx, rec.ID)
	must(t, err)
	removed, err := p.Session(ctx, rec.Session, []jobs.Record{marked})
	if err != nil || removed < 7 { // an event, three pieces, two lists, a specification, a record
		t.Errorf("removed %d, %v", removed, err)
	}
	if again, err := p.Session(ctx, rec.Session, []jobs.Record{marked}); again != 0 || err != nil {
		t.Errorf("once more: removed %d, %v", again, err)
	}
	must(t, log.Finish(ctx, rec, rec.Result()))
	if err := w.Append(ctx, event.New(event.OutputLine{Text: "late"})); err == nil {
		t.Error("an attempt of before has written an event")
	}
	for e, err := range log.Read(ctx, rec.Session, 1) {
		t.Errorf("the session has %+v, %v", e, err)
	}
	if _, err := q.Get(ctx, rec.ID); !errors.Is(err, jobs.ErrPurged) || !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("its record: %v", err)
	}
	if lost, err := q.Recovery().Audit(ctx, true, log.Lasts, store.LastResult); err != nil || len(lost) > 0 {
		t.Errorf("a dispatcher that begins to lead repairs %v, %v", lost, err)
	}
}

// A session is purged with all of its jobs, or not at all.
func TestASessionIsPurgedAsAWhole(t *testing.T) {
	t.Parallel()
	ctx, nc := jobstest.Context(t), jobstest.Start(t).Connect()
	q, store := jobstest.Queue(t, nc, queue.Config{}), jobstest.Store(t, nc)
	jobstest.Log(t, nc)
	var list []jobs.Record
	for range 2 {
		rec := jobstest.Submit(t, q, jobstest.Job())
		c := jobstest.Claim(t, q, "w")
		_, err := c.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
		must(t, err)
		rec, err = q.Get(ctx, rec.ID)
		must(t, err)
		list = append(list, rec)
	}
	runs := jobstest.Submit(t, q, jobstest.Job())
	p := purge.New(q, store)
	if removed, err := p.Session(ctx, list[0].Session, append(list, runs)); removed != 0 || !errors.Is(err, jobs.ErrNotFinished) {
		t.Errorf("one of them runs: removed %d, %v", removed, err)
	}
	if rec, err := q.Get(ctx, list[0].ID); err != nil || rec.Purging {
		t.Errorf("what was refused has marked %+v, %v", rec, err)
	}
	_, err := p.Session(ctx, list[0].Session, list)
	must(t, err)
	for _, rec := range list {
		if _, err := q.Get(ctx, rec.ID); !errors.Is(err, jobs.ErrPurged) {
			t.Errorf("job %s: %v", rec.ID, err)
		}
	}
}

// A caller that does not wait for its purge begins another one. Each may be the first at each step, and all of
// them succeed.
func TestPurgesOfOneJobAtOnce(t *testing.T) {
	t.Parallel()
	ctx, nc := jobstest.Context(t), jobstest.Start(t).Connect()
	q, store := jobstest.Queue(t, nc, queue.Config{}), jobstest.Store(t, nc)
	jobstest.Log(t, nc)
	p := purge.New(q, store)
	for range 10 {
		rec := jobstest.Submit(t, q, jobstest.Job())
		_, err := jobstest.Claim(t, q, "w").Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil)
		must(t, err)
		var g errgroup.Group
		for range 4 {
			g.Go(func() error {
				_, err := p.Session(ctx, rec.Session, []jobs.Record{{ID: rec.ID, Session: rec.Session, State: jobs.Finished}})
				return err
			})
		}
		must(t, g.Wait())
		if _, err := q.Get(ctx, rec.ID); !errors.Is(err, jobs.ErrPurged) {
			t.Errorf("job %s: %v", rec.ID, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
