package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// A parked job goes on when its time is over, without a repair that looks for it.
func TestAParkedJobGoesOnInTime(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{})
	runDue(t, q)
	rec := jobstest.Submit(t, q, jobstest.Job())
	until := time.Now().Add(1200 * time.Millisecond)
	parked, err := jobstest.Claim(t, q, "w").Park(jobstest.Context(t), "a question", until)
	if err != nil || parked.NotBefore == nil || !parked.NotBefore.Equal(until.Truncate(0)) || parked.Message != "a question" {
		t.Fatalf("park: %+v, %v", parked, err)
	}
	c := jobstest.Claim(t, q, "w")
	if got := c.Record(); got.ID != rec.ID || got.Attempt != 2 || got.Hold != "" || got.NotBefore != nil || c.Previous() != nil {
		t.Errorf("claimed %+v after %+v", got, c.Previous())
	}
	// The broker's clock began it, and ours is the same here.
	if now := time.Now(); now.Before(until.Add(-time.Second)) {
		t.Errorf("claimed %v too early", until.Sub(now))
	}
}

// A worker that parks a job may die after its first write: the worker that the
// broker offers the job to next does the rest, or repair does.
func TestCrashWhileParking(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	if err := queue.ParkOnly(jobstest.Context(t), c, time.Now().Add(6*lease)); err != nil {
		t.Fatal(err)
	}
	runDue(t, q)
	idle(t, q, lease+500*time.Millisecond) // it is offered again, and only put aside
	if got := get(t, q, rec.ID); !got.Asking() {
		t.Fatalf("the record is %+v", got)
	}
	if got := jobstest.Claim(t, q, "w").Record(); got.ID != rec.ID || got.Attempt != 2 {
		t.Errorf("claimed %+v", got)
	}
}

// A job whose cancel was asked for is not parked.
func TestACancelledJobIsNotParked(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	if _, err := q.Cancel(jobstest.Context(t), rec.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour)); !errors.Is(err, jobs.ErrCancelled) {
		t.Fatalf("park: %v, want that it is cancelled", err)
	}
	settle(t, c, jobs.Cancelled.Ended("as wished"))
	if got := get(t, q, rec.ID); got.Outcome != jobs.Cancellation {
		t.Errorf("ended as %+v", got)
	}
}

// A worker that has lost a job cannot park it.
func TestAFencedWorkerParksNothing(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{})
	jobstest.Submit(t, q, jobstest.Job())
	old := jobstest.Claim(t, q, "old")
	second := jobstest.Claim(t, q, "new") // the old one was silent
	if _, err := old.Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour)); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("park: %v, want that it is fenced", err)
	}
	settle(t, second, success)
}
