package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
)

func standing(tb testing.TB, q *queue.Queue, id string) why.Standing {
	tb.Helper()
	s, err := q.Standings().Why(jobstest.Context(tb), id, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// wants fails unless a job is kept so.
func wants(tb testing.TB, q *queue.Queue, rec jobs.Record, want why.Constraint) why.Standing {
	tb.Helper()
	s := standing(tb, q, rec.ID)
	if s.Constraint != want {
		tb.Errorf("got %+v, want %s", s, want)
	}
	return s
}

func present(tb testing.TB, q *queue.Queue, w why.Worker) {
	tb.Helper()
	if err := q.Workers().Present(jobstest.Context(tb), w); err != nil {
		tb.Fatal(err)
	}
}

// One job, from its submission to its end: at each step the answer is what
// really keeps it, read from the broker.
func TestWhyOnTheWayOfAJob(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	ctx := jobstest.Context(t)
	rec, _, err := q.Accept(ctx, batchJob("b"))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, q, rec, why.KeptDue) // its submitter died here
	if err := q.Enqueue(ctx, rec); err != nil {
		t.Fatal(err)
	}
	wants(t, q, rec, why.KeptNoWorker)
	present(t, q, why.Worker{Name: "other.host", Queues: []string{"x"}, Slots: 1})
	wants(t, q, rec, why.KeptNoQueue)
	present(t, q, why.Worker{Name: "w", Queues: []string{"x", "default"}, Slots: 2, Busy: 2})
	if got := wants(t, q, rec, why.KeptSlots); got.Position != 1 || got.Slots != 2 {
		t.Errorf("%+v, want number 1 for 2 slots", got)
	}
	present(t, q, why.Worker{Name: "w", Queues: []string{"default"}, Slots: 2, Closed: "its disk is low"})
	wants(t, q, rec, why.KeptClosed)
	present(t, q, why.Worker{Name: "w", Queues: []string{"default"}, Slots: 2})
	wants(t, q, rec, why.KeptByNothing)
	hold(t, q, jobs.Hold{Kind: jobs.HoldQueue, Name: "default", By: "test"})
	wants(t, q, rec, why.KeptQueuePaused)
	hold(t, q, jobs.Hold{Kind: jobs.HoldBatch, Name: "b"})
	wants(t, q, rec, why.KeptBatchPaused)
	if err := q.Release(ctx, jobs.HoldQueue, "default", q.List); err != nil {
		t.Fatal(err)
	}
	idle(t, q, 200*time.Millisecond) // it is parked
	wants(t, q, rec, why.KeptBatchPaused)
	release(t, q, "b")
	c := jobstest.Claim(t, q, "w")
	if got := wants(t, q, rec, why.KeptExecuting); got.Worker != "w" || got.Until == nil {
		t.Errorf("%+v, want the worker and its lease", got)
	}
	settle(t, c, jobs.AgentCrashed.Ended("killed"))
	if got := wants(t, q, rec, why.KeptBackOff); got.Until == nil || !got.Until.After(time.Now()) {
		t.Errorf("%+v, want the time of the next attempt", got)
	}
	runDue(t, q)
	c = jobstest.Claim(t, q, "w")
	if _, err := q.Cancel(ctx, rec.ID, "test"); err != nil {
		t.Fatal(err)
	}
	wants(t, q, rec, why.KeptCancelling)
	settle(t, c, jobs.AgentFailed.Ended("it was told to end"))
	wants(t, q, rec, why.KeptFinished)
	if _, err := q.Standings().Why(ctx, jobs.NewID(), nil); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("why of no job: %v", err)
	}
}

func TestWhyOfWhatWaits(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	later := time.Now().Add(time.Hour)
	job := jobstest.Job()
	job.RunAt = &later
	if got := wants(t, q, jobstest.Submit(t, q, job), why.KeptRunAt); got.Until == nil || got.Until.Sub(later).Abs() > time.Second {
		t.Errorf("%+v, want %v", got, later)
	}
	rec := jobstest.Submit(t, q, jobstest.Job())
	if _, err := jobstest.Claim(t, q, "w").Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	wants(t, q, rec, why.KeptParked)
	soon := time.Now().Add(50 * time.Millisecond)
	job.RunAt = &soon // and no dispatcher runs what is due
	rec = jobstest.Submit(t, q, job)
	time.Sleep(time.Until(soon) + 50*time.Millisecond)
	wants(t, q, rec, why.KeptDue)
}

// A worker that says nothing more is forgotten, and one that leaves at once.
func TestAWorkerIsForgotten(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	names := func() (list []string) {
		workers, err := q.Workers().List(jobstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range workers {
			list = append(list, w.Name)
		}
		return list
	}
	present(t, q, why.Worker{Name: "stays"})
	present(t, q, why.Worker{Name: "leaves"})
	if got := names(); len(got) != 2 {
		t.Errorf("workers %v, want two", got)
	}
	if err := q.Workers().Leave(context.Background(), "leaves"); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) != 1 || got[0] != "stays" {
		t.Errorf("workers %v, want one", got)
	}
	if testing.Short() {
		return
	}
	for deadline := time.Now().Add(jobstest.Patience); len(names()) > 0; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the silent worker is not forgotten")
		}
	}
}
