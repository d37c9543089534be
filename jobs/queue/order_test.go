package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

func TestPriority(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	for _, p := range []jobs.Priority{jobs.Low, jobs.Normal, jobs.High, jobs.Normal, jobs.High} {
		job := jobstest.Job()
		job.Priority = p
		jobstest.Submit(t, q, job)
	}
	// The broker counts what it has stored a moment later, and hands out
	// nothing before that.
	for deadline := time.Now().Add(jobstest.Patience); ; time.Sleep(time.Millisecond) {
		n, err := queue.Undelivered(jobstest.Context(t), q, "default")
		if err != nil {
			t.Fatal(err)
		}
		if n == 5 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d undelivered, want 5", n)
		}
	}
	var got []string
	for range 5 {
		c := jobstest.Claim(t, q, "w")
		got = append(got, string(c.Record().Priority))
		settle(t, c, success)
	}
	if want := "high high normal normal low"; strings.Join(got, " ") != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

func TestQueuesAreApart(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	job.Queue = "gpu-large"
	rec := jobstest.Submit(t, q, job)
	idle(t, q, 100*time.Millisecond)
	c, err := q.Claim(jobstest.Context(t), "w", []string{"default", "gpu-large"})
	if err != nil || c.Record().ID != rec.ID {
		t.Fatalf("claim: %v, want %s", err, rec.ID)
	}
	if _, err := q.Claim(jobstest.Context(t), "w", []string{"*"}); err == nil {
		t.Error("a queue named * was accepted")
	}
}

// A claimer that already waits hears of a new job at once, and of a job in a
// queue that did not exist when it began to wait.
func TestClaimersAreNotified(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: 10 * time.Second})
	// A claimer that is not notified takes longer every time; one that is may do so on a
	// busy machine.
	fastest := time.Hour
	for tries := 0; tries < 10 && fastest > delivery.Poll/2; tries++ {
		took := make(chan time.Time, 1)
		var done sync.WaitGroup
		done.Go(func() {
			c := jobstest.Claim(t, q, "w")
			took <- time.Now()
			settle(t, c, success)
		})
		time.Sleep(500 * time.Millisecond) // by now it sleeps until it is woken, or looks for itself
		begun := time.Now()
		jobstest.Submit(t, q, jobstest.Job())
		fastest = min(fastest, (<-took).Sub(begun))
		done.Wait()
	}
	if fastest > delivery.Poll/2 {
		t.Errorf("claimed after %s; a claimer that is not notified looks every %s", fastest, delivery.Poll)
	}
}

// runDue moves due jobs to their queues until the test ends.
func runDue(t *testing.T, q *queue.Queue) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := q.RunDue(ctx, nil); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

func TestDelayedSurvivesRestart(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	at := time.Now().Add(2 * time.Second)
	job.RunAt = &at
	rec := jobstest.Submit(t, q, job)
	if rec.State != jobs.Delayed {
		t.Fatalf("state %s, want delayed", rec.State)
	}
	runDue(t, q)
	s.Restart()
	c := jobstest.Claim(t, q, "w")
	if early := time.Until(at); early > 10*time.Millisecond {
		t.Errorf("claimed %s too early", early)
	}
	settle(t, c, success)
}

func TestOverdueScheduleIsRepaired(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	at := time.Now().Add(200 * time.Millisecond)
	job.RunAt = &at
	// The submitter dies before it has made the schedule.
	rec, _, err := q.Accept(jobstest.Context(t), job)
	if err != nil {
		t.Fatal(err)
	}
	repaired(t, q)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = q.RunDue(ctx, nil) })
	defer done.Wait()
	defer cancel()
	if got := jobstest.Claim(t, q, "w").Record().ID; got != rec.ID {
		t.Errorf("claimed %s, want %s", got, rec.ID)
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	failed := jobs.Ended{Outcome: jobs.Error, Reason: jobs.AgentCrashed, Message: "killed"}
	got := settle(t, jobstest.Claim(t, q, "w"), failed)
	if got.State != jobs.Delayed || got.Counted != 1 || got.NotBefore == nil {
		t.Fatalf("record %+v, want delayed after one counted attempt", got)
	}
	idle(t, q, lease+500*time.Millisecond)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = q.RunDue(ctx, nil) })
	defer done.Wait()
	defer cancel()
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != rec.ID || c.Record().Attempt != 2 || time.Now().Before(*got.NotBefore) {
		t.Errorf("claimed %+v, want attempt 2 not before %s", c.Record(), got.NotBefore)
	}
}

// A drained worker gives its job back, and another has it at once.
func TestRequeue(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	a, b := open(t, s, queue.Config{Lease: 10 * time.Second}), open(t, s, queue.Config{Lease: 10 * time.Second})
	// A claimer that is not notified takes longer every time; one that is may do so on a
	// busy machine.
	fastest := time.Hour
	for tries := 0; tries < 10 && fastest > delivery.Poll/2; tries++ {
		jobstest.Submit(t, a, jobstest.Job())
		c := jobstest.Claim(t, a, "w1")
		took := make(chan *queue.Claim, 1)
		go func() { took <- jobstest.Claim(t, b, "w2") }()
		time.Sleep(500 * time.Millisecond) // by now it sleeps until it is woken
		begun := time.Now()
		rec := settle(t, c, jobs.Ended{Outcome: jobs.Error, Reason: jobs.WorkerDrained})
		if rec.State != jobs.Pending || rec.Counted != 0 {
			t.Errorf("record %+v, want pending, nothing counted", rec)
		}
		next := <-took
		fastest = min(fastest, time.Since(begun))
		if got := next.Record().Attempt; got != 2 {
			t.Errorf("attempt %d, want the second", got)
		}
		settle(t, next, success)
	}
	if fastest > delivery.Poll/2 {
		t.Errorf("the fastest was claimed after %s, want it at once", fastest)
	}
}

func TestRetry(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	if _, err := q.Retry(jobstest.Context(t), rec.ID, false, nil); err == nil {
		t.Error("retried a job that has not finished")
	}
	settle(t, jobstest.Claim(t, q, "w"), jobs.Ended{Outcome: jobs.Error, Reason: jobs.Billing})
	if dead, err := q.DeadLetters().List(jobstest.Context(t)); err != nil || len(dead) != 1 {
		t.Errorf("%d dead letters, %v; want 1", len(dead), err)
	}
	announced := false
	got, err := q.Retry(jobstest.Context(t), rec.ID, false, func(ctx context.Context, _ jobs.Record) error {
		announced = true
		if now := get(t, q, rec.ID); now.State != jobs.Finished {
			t.Errorf("a worker may claim the job before its session says that it is retried: it is %s", now.State)
		}
		return nil
	})
	if err != nil || !announced || got.State != jobs.Pending || got.Outcome != "" || got.Finished != nil {
		t.Fatalf("retry: %+v, %v; want pending", got, err)
	}
	if dead, err := q.DeadLetters().List(jobstest.Context(t)); err != nil || len(dead) != 0 {
		t.Errorf("%d dead letters, %v; want none", len(dead), err)
	}
	c := jobstest.Claim(t, q, "w")
	if c.Record().Attempt != 2 {
		t.Errorf("attempt %d, want 2", c.Record().Attempt)
	}
	settle(t, c, success)
	_, err = q.Retry(jobstest.Context(t), rec.ID, false, nil)
	if refused, ok := errors.AsType[*queue.NotRetryableError](err); !ok || refused.Outcome != jobs.Success {
		t.Errorf("retry of a success: %v, want it refused", err)
	}
}

func TestManySubmitAndClaim(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	cfg.Lease = 10 * time.Second
	const goroutines, each = 64, 5
	var wg sync.WaitGroup
	var mu sync.Mutex
	ran := map[string]int{}
	queues := []*queue.Queue{open(t, s, cfg), open(t, s, cfg), open(t, s, cfg)}
	for i := range goroutines {
		q := queues[i%len(queues)]
		wg.Go(func() {
			for n := range each {
				job := jobstest.Job()
				job.Priority = []jobs.Priority{jobs.High, jobs.Normal, jobs.Low}[n%3]
				jobstest.Submit(t, q, job)
			}
		})
		wg.Go(func() {
			for range each {
				c := jobstest.Claim(t, q, fmt.Sprint("w", i))
				mu.Lock()
				ran[c.Record().ID]++
				mu.Unlock()
				settle(t, c, success)
			}
		})
	}
	wg.Wait()
	if len(ran) != goroutines*each || int(finished.Load()) != goroutines*each {
		t.Errorf("%d jobs ran, %d finished; want %d", len(ran), finished.Load(), goroutines*each)
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("job %s ran %d times", id, n)
		}
	}
	idle(t, queues[0], 50*time.Millisecond)
}

func TestListWatch(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	batch := jobs.NewID()
	job := jobstest.Job()
	job.Batch = batch
	a, b := jobstest.Submit(t, q, job), jobstest.Submit(t, q, job)
	jobstest.Submit(t, q, jobstest.Job())

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	caught := make(chan bool, 100)
	seen := make(chan jobs.Record, 100)
	var done sync.WaitGroup
	done.Go(func() {
		for rec, err := range q.Watch(ctx, record.Filter{Batch: batch, Caught: func() { caught <- true }}) {
			if err != nil {
				t.Error(err)
			}
			seen <- rec
		}
	})
	<-caught
	if len(seen) != 2 {
		t.Errorf("%d records before it has caught up, want 2", len(seen))
	}
	c := jobstest.Claim(t, q, "w")
	s.Restart()
	settle(t, c, success)
	for rec := range seen {
		if rec.ID == a.ID && rec.State == jobs.Finished {
			break
		}
	}
	cancel()
	done.Wait()

	list, err := q.List(jobstest.Context(t), record.Filter{Batch: batch})
	if err != nil || len(list) != 2 || list[0].ID != a.ID || list[1].ID != b.ID {
		t.Errorf("list %v, %v; want both in order", list, err)
	}
}
