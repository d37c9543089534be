package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/flaky"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// keep holds a claim until stop is called, which returns what Keep returned.
func keep(c *queue.Claim) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- c.Keep(ctx) }()
	return func() error {
		cancel()
		return <-kept
	}
}

func TestRestartWhileRunning(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: time.Minute})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	stop := keep(c)
	s.Restart()
	got := settle(t, c, success)
	if got.Outcome != jobs.Success || got.ID != rec.ID || got.Attempt != 1 {
		t.Errorf("settled %+v, want the success of attempt 1", got)
	}
	if err := stop(); err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
	idle(t, q, 100*time.Millisecond)
}

func TestServerKilledWhileRunning(t *testing.T) {
	t.Parallel()
	// A restart of the broker is shorter, on a busy machine, too.
	const lease = 15 * time.Second
	s := jobstest.Child(t)
	q := jobstest.Queue(t, jobstest.Connect(t, s.URL()), queue.Config{Lease: lease})
	waiting, running := jobstest.Submit(t, q, jobstest.Job()), jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	waiting, running = running, waiting // the older one was claimed
	stop := keep(c)
	s.Kill()
	settled := make(chan error, 1)
	go func() {
		_, err := c.Settle(jobstest.Context(t), success, nil)
		settled <- err
	}()
	time.Sleep(100 * time.Millisecond) // so that it asks a server that is not there
	s.Up()
	if err := <-settled; err != nil {
		t.Errorf("settle across the restart: %v", err)
	}
	if err := stop(); err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
	if got := get(t, q, running.ID); got.Outcome != jobs.Success {
		t.Errorf("record %+v, want success", got)
	}
	// A lane is not synced: a broker that is killed may have lost its last messages, and
	// its consumer may be ahead of what there is. The leader offers such jobs again.
	stop = leading(q)
	if got := jobstest.Claim(t, q, "w").Record().ID; got != waiting.ID {
		t.Errorf("claimed %s, want %s", got, waiting.ID)
	}
	if err := stop(); err != nil {
		t.Errorf("what is lost is not offered again: %v", err)
	}
}

// leading offers jobs again whose messages are lost, as a leader does, until stop is
// called, which returns what went wrong last.
func leading(q *queue.Queue) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		var last error
		for ; ctx.Err() == nil; time.Sleep(lease / 4) {
			stranded, err := q.Stranded(ctx)
			for _, rec := range stranded {
				err = errors.Join(err, q.Enqueue(ctx, rec))
			}
			if ctx.Err() == nil {
				last = err
			}
		}
		ended <- last
	}()
	return func() error {
		cancel()
		return <-ended
	}
}

// Every step is done and not answered: it must be found done, once.
func TestUnansweredSteps(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := s.Proxy()
	direct := open(t, s, queue.Config{Lease: 20 * time.Second})
	q := jobstest.Queue(t, jobstest.Connect(t, p.URL()), queue.Config{Lease: 20 * time.Second})
	jobstest.Submit(t, q, jobstest.Job())
	settle(t, jobstest.Claim(t, q, "w"), success) // the lane exists

	// withoutAnswers runs a step whose first answers are lost.
	withoutAnswers := func(step func()) {
		p.Blackhole()
		healed := time.AfterFunc(300*time.Millisecond, p.Heal)
		defer healed.Stop()
		step()
	}
	job := jobstest.Job()
	job.Key = "once"
	var rec jobs.Record
	withoutAnswers(func() {
		var err error
		if rec, _, err = q.Accept(jobstest.Context(t), job); err != nil {
			t.Fatalf("accept: %v", err)
		}
	})
	withoutAnswers(func() {
		if err := q.Enqueue(jobstest.Context(t), rec); err != nil {
			t.Fatalf("enqueue: %v", err)
		}
	})
	if all, err := direct.List(jobstest.Context(t), record.Filter{State: jobs.Pending}); err != nil || len(all) != 1 || all[0].ID != rec.ID {
		t.Errorf("pending %v, %v; want %s", all, err, rec.ID)
	}
	c := jobstest.Claim(t, q, "w")
	withoutAnswers(func() {
		if got := settle(t, c, success); got.Outcome != jobs.Success || got.Epoch != c.Epoch() {
			t.Errorf("settled %+v", got)
		}
	})
	idle(t, direct, 100*time.Millisecond)
}

// A claim whose steps take long, each of them, is not given up between its write and the answer:
// the attempt would have begun, and no worker would run it.
func TestAClaimFarAway(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := s.Proxy()
	direct := open(t, s, queue.Config{Lease: 10 * time.Second})
	q := jobstest.Queue(t, jobstest.Connect(t, p.URL()), queue.Config{Lease: 10 * time.Second})
	setCaps(t, direct, "queue:default=4")
	p.Move(flaky.Distance{RoundTrip: 1400 * time.Millisecond})
	rec := jobstest.Submit(t, direct, jobstest.Job())
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != rec.ID || c.Record().Attempt != 1 {
		t.Errorf("claimed attempt %d of %s, want attempt 1 of %s", c.Record().Attempt, c.Record().ID, rec.ID)
	}
}

// A worker that is cut off stops by its own clock before another may begin,
// and can do nothing when it is back.
func TestCutOffWorkerFencesItself(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := s.Proxy()
	cut := jobstest.Queue(t, jobstest.Connect(t, p.URL()), queue.Config{Lease: slowtest.Limit(2 * time.Second)})
	other := open(t, s, queue.Config{})
	jobstest.Submit(t, cut, jobstest.Job())
	c := jobstest.Claim(t, cut, "w1")
	kept := make(chan error, 1)
	var fenced time.Time
	go func() {
		err := c.Keep(jobstest.Context(t))
		fenced = time.Now()
		kept <- err
	}()
	time.Sleep(100 * time.Millisecond) // one heartbeat
	p.Cut()
	next := jobstest.Claim(t, other, "w2")
	taken := time.Now()
	if err := <-kept; !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("keep: %v, want fenced", err)
	}
	if !fenced.Before(taken) {
		t.Errorf("the worker stopped %s after another had begun", fenced.Sub(taken))
	}
	p.Heal()
	if _, err := c.Settle(jobstest.Context(t), success, nil); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("settle: %v, want fenced", err)
	}
	settle(t, next, success)
}

func TestUnreachableServerIsSaid(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	s.Down()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := q.Accept(ctx, jobstest.Job()); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("accept: %v, want that the server does not answer", err)
	}
	s.Up()
}

// A full store refuses new jobs while those it has can still end.
func TestFullStore(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: 10 * time.Second})
	s.Limit(1 << 20)
	large := jobstest.Job()
	large.Prompt = strings.Repeat("x", 20<<10)
	kept := jobstest.Submit(t, q, large)
	c := jobstest.Claim(t, q, "w")
	var err error
	for range 200 {
		var rec jobs.Record
		if rec, _, err = open(t, s, queue.Config{}).Accept(jobstest.Context(t), large); err != nil {
			break
		}
		if err := q.Enqueue(jobstest.Context(t), rec); err != nil {
			t.Fatal(err)
		}
	}
	if !errors.Is(err, jobs.ErrFull) {
		t.Errorf("accept: %v, want that the store is full", err)
	}
	// One that is kept needs no room when its submitter asks again.
	if rec, duplicate, err := open(t, s, queue.Config{}).AcceptAs(jobstest.Context(t), kept.ID, large, "", nil); err != nil || !duplicate || rec.ID != kept.ID {
		t.Errorf("accept again what is kept: %s, duplicate %v, %v", rec.ID, duplicate, err)
	}
	settle(t, c, success)
}

// What cannot be taken back is done under a lease that was just renewed, or
// not at all.
func TestAssert(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	const lease = time.Minute
	q := open(t, s, queue.Config{Lease: lease})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	before := get(t, q, rec.ID).Beat
	until, err := c.Assert(t.Context())
	if left := time.Until(until); err != nil || left <= 0 || left > lease {
		t.Errorf("got %v from now, %v; want a time within the lease", left, err)
	}
	if got := get(t, q, rec.ID).Beat; got == before {
		t.Error("nothing was written: another worker's claim would not be noticed")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Assert(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v, want that", err)
	}
	if _, err := q.Cancel(t.Context(), rec.ID, "test"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is no less true the second time
		if _, err := c.Assert(t.Context()); !errors.Is(err, jobs.ErrCancelled) {
			t.Errorf("of a cancelled job: got %v, want %v", err, jobs.ErrCancelled)
		}
	}
	settle(t, c, jobs.Ended{Outcome: jobs.Cancellation, Reason: jobs.Cancelled})
	if _, err := c.Assert(t.Context()); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("of a settled job: got %v, want %v", err, jobs.ErrFenced)
	}
}

// A claim that was not kept, as that of a worker that slept, asserts nothing.
func TestAssertAfterTheLease(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: slowtest.Limit(2 * time.Second)})
	jobstest.Submit(t, q, jobstest.Job())
	slept := jobstest.Claim(t, q, "w")
	heir := jobstest.Claim(t, q, "v")
	if _, err := slept.Assert(t.Context()); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("got %v, want %v", err, jobs.ErrFenced)
	}
	if _, err := heir.Assert(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
}
