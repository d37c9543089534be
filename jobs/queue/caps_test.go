package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func setCaps(tb testing.TB, q *queue.Queue, list ...string) {
	tb.Helper()
	var caps schedule.Caps
	for _, s := range list {
		c, err := schedule.ParseCap(s)
		if err != nil {
			tb.Fatal(err)
		}
		caps = append(caps, c)
	}
	if err := q.Permits().SetCaps(jobstest.Context(tb), caps); err != nil {
		tb.Fatal(err)
	}
}

func ofRepo(url string) jobs.Job {
	job := jobstest.Job()
	job.Repo.URL = url
	return job
}

// claimed claims a job if there is one within a moment.
func claimed(tb testing.TB, q *queue.Queue, within time.Duration) *queue.Claim {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := q.Claim(ctx, "w", []string{"default"})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		tb.Fatal(err)
	}
	return c
}

// A job under a full cap is not claimed, others are; and a permit that is given
// back, or that a worker took with it, is there for the next.
func TestACapBoundsWhatRuns(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: 30 * time.Second})
	setCaps(t, q, "repo:*=1", "agent:command=5")
	a := jobstest.Submit(t, q, ofRepo("/a"))
	second := jobstest.Submit(t, q, ofRepo("/a"))
	b := jobstest.Submit(t, q, ofRepo("/b"))
	first := jobstest.Claim(t, q, "w")
	other := jobstest.Claim(t, q, "w")
	if first.Record().ID != a.ID || other.Record().ID != b.ID {
		t.Fatalf("claimed %s and %s, want %s and %s", first.Record().ID, other.Record().ID, a.ID, b.ID)
	}
	present(t, q, why.Worker{Name: "w", Queues: []string{"default"}, Slots: 4, Busy: 2})
	if got := wants(t, q, second, why.KeptCap); got.Message != "cap repo:/a lets 1 run at once, and 1 do" {
		t.Errorf("%+v, want the cap named", got)
	}
	if c := claimed(t, q, 300*time.Millisecond); c != nil {
		t.Fatalf("claimed %s over the cap", c.Record().ID)
	}
	settle(t, first, success)
	c := jobstest.Claim(t, q, "w")
	if c.Record().ID != second.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, second.ID)
	}
	// A drained worker gives its permit back with the job.
	settle(t, c, jobs.WorkerDrained.Ended("drained"))
	c = jobstest.Claim(t, q, "w")
	third := jobstest.Submit(t, q, ofRepo("/a"))
	if _, err := c.Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if c = jobstest.Claim(t, q, "w"); c.Record().ID != third.ID {
		t.Errorf("claimed %s, want %s: what is parked does not run", c.Record().ID, third.ID)
	}
	caps, err := q.Permits().Caps(jobstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	running, err := q.List(jobstest.Context(t), record.Filter{State: jobs.Executing})
	got := ""
	for _, c := range caps.Used(running) {
		got += fmt.Sprintf("%s %d of %d, ", c.Key, c.Running, c.Most)
	}
	if want := "repo:* 2 of 1, repo:/a 1 of 1, repo:/b 1 of 1, agent:command 2 of 5, "; err != nil || got != want {
		t.Errorf("used: %s, %v; want %s", got, err, want)
	}
}

// A worker that is lost still counts until its job is taken over, which needs
// no second permit.
func TestAPermitIsTakenOverWithTheJob(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	setCaps(t, q, "repo:*=1")
	lost := jobstest.Submit(t, q, ofRepo("/a"))
	jobstest.Claim(t, q, "dies")
	next := jobstest.Submit(t, q, ofRepo("/a"))
	c := jobstest.Claim(t, q, "w")
	if c.Record().ID != lost.ID || c.Record().Attempt != 2 {
		t.Fatalf("claimed %+v, want the second attempt of %s", c.Record(), lost.ID)
	}
	stop := keep(c)
	if c := claimed(t, q, 300*time.Millisecond); c != nil {
		t.Fatalf("claimed %s over the cap", c.Record().ID)
	}
	if err := stop(); err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
	settle(t, c, success)
	if c = jobstest.Claim(t, q, "w"); c.Record().ID != next.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, next.ID)
	}
	settle(t, c, success)
}

// A claimer that died with a permit leaves it void, but one that is only slow
// is waited for.
func TestAPermitOfADeadClaimerIsVoid(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: 30 * time.Second})
	setCaps(t, q, "repo:*=1")
	job := ofRepo("/a")
	job.Queue = "elsewhere" // no claimer serves it
	taken := jobstest.Submit(t, q, job)
	take := func(at time.Time) {
		t.Helper()
		if err := queue.TakePermit(jobstest.Context(t), q, taken.ID, at); err != nil {
			t.Fatal(err)
		}
	}
	take(time.Now().Add(time.Minute)) // also if this machine is slow
	rec := jobstest.Submit(t, q, ofRepo("/a"))
	if c := claimed(t, q, 300*time.Millisecond); c != nil {
		t.Fatalf("claimed %s, and another is being claimed", c.Record().ID)
	}
	take(time.Now().Add(-time.Minute))
	c := jobstest.Claim(t, q, "w")
	if c.Record().ID != rec.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, rec.ID)
	}
	// The slow claimer's write fails, and it finds no permit when it tries again.
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if c, err := q.Claim(ctx, "w", []string{"elsewhere"}); c != nil {
		t.Errorf("claimed %s over the cap, %v", c.Record().ID, err)
	}
}

// No cap is exceeded at any moment by 64 slots of 8 processes, while workers
// lose jobs, give them back and fail.
func TestNoCapIsExceeded(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg := queue.Config{Lease: slowtest.Limit(5 * time.Second)}
	const n, repos = 160, 3
	caps := map[string]int64{"repo:/0": 2, "repo:/1": 2, "repo:/2": 1, "queue:default": 4}
	q := open(t, s, cfg)
	setCaps(t, q, "repo:*=2", "repo:/2=1", "queue:default=4")
	for i := range n {
		jobstest.Submit(t, q, ofRepo(fmt.Sprint("/", i%repos)))
	}
	running := map[string]*atomic.Int64{}
	for key := range caps {
		running[key] = new(atomic.Int64)
	}
	count := func(rec jobs.Record, by int64) {
		for _, key := range []string{"repo:" + rec.Repo, "queue:default"} {
			if now := running[key].Add(by); now > caps[key] {
				t.Errorf("%d jobs run under %s, which allows %d", now, key, caps[key])
			}
		}
	}
	var left atomic.Int64
	left.Store(n)
	ctx, cancel := context.WithTimeout(context.Background(), 2*jobstest.Patience)
	defer cancel()
	var wg sync.WaitGroup
	for range 8 {
		q := open(t, s, cfg)
		for slot := range 8 {
			wg.Go(func() {
				for i := slot; left.Load() > 0; i++ {
					c, err := q.Claim(ctx, "w", []string{"default"})
					if err != nil {
						if left.Load() > 0 {
							t.Error(err)
						}
						return
					}
					count(c.Record(), 1)
					time.Sleep(time.Duration(i%3) * time.Millisecond)
					end := success
					if i%8 == 0 && c.Record().Attempt < 3 {
						end = jobs.WorkerDrained.Ended("drained")
					}
					count(c.Record(), -1)
					if settle(t, c, end).State == jobs.Finished && left.Add(-1) == 0 {
						cancel()
					}
				}
			})
		}
	}
	wg.Wait()
	if left.Load() != 0 {
		t.Errorf("%d jobs are left", left.Load())
	}
}
