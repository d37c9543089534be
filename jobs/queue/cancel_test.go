package queue_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestCancelInQueue(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	later := jobstest.Job()
	at := time.Now().Add(time.Hour)
	later.RunAt = &at
	for _, job := range []jobs.Job{jobstest.Job(), later} {
		rec := jobstest.Submit(t, q, job)
		got, err := q.Cancel(jobstest.Context(t), rec.ID, "ada")
		if err != nil || got.Outcome != jobs.Cancellation || got.Reason != jobs.Cancelled || got.Cancel.By != "ada" {
			t.Errorf("cancel %s job: %+v, %v; want it finished", rec.State, got, err)
		}
		if _, err := q.Cancel(jobstest.Context(t), rec.ID, "ada"); !errors.Is(err, jobs.ErrFinished) {
			t.Errorf("cancel again: %v, want finished", err)
		}
	}
	if finished.Load() != 2 {
		t.Errorf("finished %d times, want 2", finished.Load())
	}
	idle(t, q, 100*time.Millisecond)
	if _, err := q.Cancel(jobstest.Context(t), jobs.NewID(), "ada"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("cancel an unknown job: %v, want not found", err)
	}
}

func TestCancelExecuting(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	const lease = time.Minute // a heartbeat reads of it, too
	q := open(t, s, queue.Config{Lease: lease})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	kept := make(chan error, 1)
	go func() { kept <- c.Keep(jobstest.Context(t)) }()
	time.Sleep(50 * time.Millisecond) // so that it is the nudge that wakes it
	begun := time.Now()
	if got, err := q.Cancel(jobstest.Context(t), rec.ID, "ada"); err != nil || got.State != jobs.Executing {
		t.Errorf("cancel: %+v, %v; want it to be executing still", got, err)
	}
	if err := <-kept; !errors.Is(err, jobs.ErrCancelled) {
		t.Errorf("keep: %v, want cancelled", err)
	}
	if d := time.Since(begun); d > lease/4 {
		t.Errorf("the worker heard of it after %s, want at once", d)
	}
	// While the agent ends the lease is still held.
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := c.Keep(ctx); err != nil {
		t.Errorf("keep again: %v, want nil", err)
	}
	got := settle(t, c, jobs.Cancelled.Ended("the agent was ended"))
	if got.Outcome != jobs.Cancellation || got.Message != "cancelled by ada" {
		t.Errorf("settled %+v, want cancelled by ada", got)
	}
}

// The test does not renew the claim, so it learns of the cancel only when it
// settles.
func TestCancelMeetsSettle(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	if _, err := q.Cancel(jobstest.Context(t), rec.ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := settle(t, c, success); got.Outcome != jobs.Cancellation || got.Epoch != c.Epoch() {
		t.Errorf("settled %+v, want a cancellation of the same epoch", got)
	}
}

func TestCancelAfterWorkerDied(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	rec := jobstest.Submit(t, q, jobstest.Job())
	jobstest.Claim(t, q, "w")
	if _, err := q.Cancel(jobstest.Context(t), rec.ID, "ada"); err != nil {
		t.Fatal(err)
	}
	idleUntil(t, q, "the end is told", func() bool { return finished.Load() > 0 })
	if got := get(t, q, rec.ID); got.Outcome != jobs.Cancellation || finished.Load() != 1 {
		t.Errorf("record %+v, finished %d times; want one cancellation", got, finished.Load())
	}
}

// Cancel and Claim meet: whichever comes first, the job ends as cancelled, once.
func TestCancelMeetsClaim(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	const n = 25
	for range n {
		rec := jobstest.Submit(t, q, jobstest.Job())
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.Cancel(jobstest.Context(t), rec.ID, ""); err != nil {
				t.Error(err)
			}
		})
		if c, err := q.Claim(ctx, "w", []string{"default"}); err == nil {
			wg.Wait()
			settle(t, c, success)
		}
		wg.Wait()
		cancel()
		if got := get(t, q, rec.ID); got.Outcome != jobs.Cancellation {
			t.Errorf("record %+v, want a cancellation", got)
		}
	}
	if got := finished.Load(); got < n {
		t.Errorf("finished %d times, want at least %d", got, n)
	}
	if left := repairsLeft(t, q); len(left) > 0 {
		t.Errorf("stranded: %v", left)
	}
}

func TestPark(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	a, b := jobstest.Submit(t, q, jobstest.Job()), jobstest.Submit(t, q, jobstest.Job())
	var first jobs.Record
	for range 2 {
		c := jobstest.Claim(t, q, "w")
		rec, err := c.Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour))
		if err != nil || !rec.Asking() || rec.Worker != "" || rec.Counted+rec.Lost > 0 {
			t.Fatalf("park: %+v, %v; want it waiting, and charged to nothing", rec, err)
		}
		if rec.ID == a.ID {
			first = rec
		}
		if err := c.Keep(jobstest.Context(t)); err != nil {
			t.Errorf("keep a parked job: %v, want nil", err)
		}
	}
	idle(t, q, lease+500*time.Millisecond)
	if rec, err := q.Wake(jobstest.Context(t), first); err != nil || rec.State != jobs.Pending {
		t.Errorf("wake: %+v, %v; want pending", rec, err)
	}
	c := jobstest.Claim(t, q, "w")
	if c.Record().ID != a.ID || c.Record().Attempt != 2 {
		t.Errorf("claimed %+v, want attempt 2 of %s", c.Record(), a.ID)
	}
	if rec, err := q.Wake(jobstest.Context(t), first); err != nil || rec.State != jobs.Executing {
		t.Errorf("waken again: %+v, %v; want it left alone", rec, err)
	}
	if rec, err := c.Park(jobstest.Context(t), "another", time.Now().Add(time.Hour)); err != nil || !rec.Asking() {
		t.Fatalf("park again: %+v, %v", rec, err)
	}
	second, err := q.Wake(jobstest.Context(t), first)
	if err != nil || !second.Asking() {
		t.Errorf("woken by the answer to an earlier question: %+v, %v", second, err)
	}
	if _, err := q.Wake(jobstest.Context(t), second); err != nil {
		t.Fatal(err)
	}
	c = jobstest.Claim(t, q, "w")
	if rec, err := q.Cancel(jobstest.Context(t), b.ID, ""); err != nil || rec.Outcome != jobs.Cancellation || finished.Load() != 1 {
		t.Errorf("cancel a parked job: %+v, %v; want it finished once", rec, err)
	}
	settle(t, c, success)
	idle(t, q, 100*time.Millisecond)
}

func TestPause(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	jobstest.Submit(t, q, jobstest.Job())
	if err := q.Hold(jobstest.Context(t), jobs.Hold{Kind: jobs.HoldQueue, Name: "default"}); err != nil {
		t.Fatal(err)
	}
	idle(t, q, 200*time.Millisecond)
	// Neither a restart nor a dispatcher that brings its own settings resumes it.
	s.Restart()
	again := open(t, s, queue.Config{Upgrade: true})
	jobstest.Submit(t, again, jobstest.Job())
	idle(t, again, 200*time.Millisecond)
	if holds, err := q.Holds().List(jobstest.Context(t)); err != nil || len(holds) != 1 || holds[0].Name != "default" {
		t.Errorf("holds %+v, %v; want one", holds, err)
	}
	if err := q.Release(jobstest.Context(t), jobs.HoldQueue, "default", q.List); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := jobstest.Claim(t, q, "w")
		if c.Record().Attempt != 1 {
			t.Errorf("attempt %d, want the first: nothing was delivered", c.Record().Attempt)
		}
		settle(t, c, success)
	}
	if holds, err := q.Holds().List(jobstest.Context(t)); err != nil || len(holds) != 0 {
		t.Errorf("holds %+v, %v; want none", holds, err)
	}
}

func TestWhatIsNoJobIsFiled(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	var refused []string
	q := open(t, s, queue.Config{Hooks: queue.Hooks{Refused: func(subject, reason string) { refused = append(refused, subject) }}})
	rec := jobstest.Submit(t, q, jobstest.Job())
	settle(t, jobstest.Claim(t, q, "w"), success) // the lane exists
	nc := s.Connect()
	for _, subject := range []string{
		"penstock.v1.q.default.p1.default.*",
		"penstock.v1.q.default.p1.default.a.b",
		"penstock.v1.q.default.p1.default." + jobs.NewID(),
	} {
		if _, err := nc.Request(subject, []byte("{"), jobstest.Patience); err != nil {
			t.Fatalf("publish to %s: %v", subject, err)
		}
	}
	idleUntil(t, q, "three dead letters", func() bool { return len(refused) == 3 && len(letters(t, q)) == 3 })
	if got := get(t, q, rec.ID); got.Outcome != jobs.Success {
		t.Errorf("the job beside them is %+v", got)
	}
	idle(t, q, lease+500*time.Millisecond)
	if n := len(letters(t, q)); n != 3 || len(refused) != 3 {
		t.Errorf("%d dead letters, and refused %v; want 3", n, refused)
	}
}

func TestSubmissions(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	if _, err := s.Connect().Request("penstock.v1.submit.default", []byte(`{"prompt":"x"}`), jobstest.Patience); err != nil {
		t.Fatal(err)
	}
	s.Restart() // what was acknowledged is kept
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var ids []string
	fault := jobstest.FailNth(1)
	err := q.Submissions(ctx, func(_ context.Context, sub queue.Submission) error {
		ids = append(ids, sub.ID)
		if string(sub.Data) != `{"prompt":"x"}` || sub.Tenant != "default" {
			t.Errorf("submission %+v", sub)
		}
		if err := fault.Check("accept"); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if err != nil || len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("ids %v, %v; want the same twice", ids, err)
	}
	if err := jobs.CheckToken("id", ids[0]); err != nil || len(ids[0]) != 36 {
		t.Errorf("id %q: %v", ids[0], err)
	}
}

// The canceller dies after it has written that a parked job is cancelled. The
// job has no message of its own, and its end is announced all the same.
func TestCrashWhileCancellingParked(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	died := errors.New("died")
	dying := open(t, s, queue.Config{Finished: func(context.Context, jobs.Record) error { return died }})
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	rec := jobstest.Submit(t, q, jobstest.Job())
	if _, err := jobstest.Claim(t, q, "w").Park(jobstest.Context(t), "a question", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := dying.Cancel(jobstest.Context(t), rec.ID, ""); !errors.Is(err, died) {
		t.Fatalf("cancel: %v, want it to die", err)
	}
	idle(t, q, 200*time.Millisecond)
	if got := get(t, q, rec.ID); got.Outcome != jobs.Cancellation || finished.Load() != 1 {
		t.Errorf("record %+v, told %d times; want a cancellation, told once", got, finished.Load())
	}
}

// A job goes on from a capsule once, with its bounds begun anew; what was
// decided on a record that is not the job's any more changes nothing.
func TestResumeIsForTheEndThatWasSeen(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	epoch := c.Epoch()
	settle(t, c, jobs.AgentFailed.Ended("no"))
	ctx := jobstest.Context(t)
	ended, err := q.Get(ctx, c.Record().ID)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		rec, err := q.Resume(ctx, ended, epoch)
		if err != nil || rec.State != jobs.Pending || rec.Resume != epoch || rec.Counted != 0 || rec.Attempt != 1 || rec.Finished != nil {
			t.Fatalf("%+v, %v", rec, err)
		}
	}
	if letters, err := q.DeadLetters().List(ctx); err != nil || len(letters) > 0 {
		t.Errorf("dead letters %v, %v", letters, err)
	}
	if _, err := q.Cancel(ctx, ended.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	if rec, err := q.Resume(ctx, ended, epoch); err != nil || rec.State != jobs.Finished || rec.Outcome != jobs.Cancellation {
		t.Errorf("after somebody cancelled it: %+v, %v", rec, err)
	}
	idle(t, q, 100*time.Millisecond)
}

// Who asserts the lease, right before something is stored, learns of a cancel and may store
// it all the same. The one that keeps the lease learns of it, too: it ends the attempt.
func TestACancelThatAssertHasSeenIsTold(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	if _, err := q.Cancel(jobstest.Context(t), rec.ID, "ann"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := c.Assert(jobstest.Context(t)); !errors.Is(err, jobs.ErrCancelled) {
			t.Fatalf("assert: %v, want that it is cancelled", err)
		}
	}
	if err := c.Keep(jobstest.Context(t)); !errors.Is(err, jobs.ErrCancelled) {
		t.Errorf("keep: %v, want that it is cancelled", err)
	}
	settle(t, c, success)
}

// A job that goes on before the worker of its last attempt has acknowledged its message can be
// claimed at once: not only when a leader finds out that its lane has no message of it.
func TestAJobGoesOnBeforeItsMessageIsAcknowledged(t *testing.T) {
	t.Parallel()
	failed := jobs.Ended{Outcome: jobs.Failure, Reason: jobs.CheckFailed}
	for name, goesOn := range map[string]func(t *testing.T, q *queue.Queue, c *queue.Claim){
		"woken": func(t *testing.T, q *queue.Queue, c *queue.Claim) {
			if err := queue.ParkOnly(jobstest.Context(t), c, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if rec, err := q.Wake(jobstest.Context(t), get(t, q, c.Record().ID)); err != nil || rec.State != jobs.Pending {
				t.Fatalf("wake: %+v, %v", rec, err)
			}
		},
		"retried": func(t *testing.T, q *queue.Queue, c *queue.Claim) {
			announce := func(ctx context.Context, rec jobs.Record) error {
				_, err := q.Retry(ctx, rec.ID, false, nil)
				return err
			}
			settleWith(t, c, failed, announce)
		},
		"resumed": func(t *testing.T, q *queue.Queue, c *queue.Claim) {
			announce := func(ctx context.Context, rec jobs.Record) error {
				now, err := q.Resume(ctx, rec, rec.Epoch)
				if err != nil {
					return err
				}
				return q.Enqueue(ctx, now)
			}
			settleWith(t, c, success, announce)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := open(t, jobstest.Start(t), queue.Config{Lease: time.Hour})
			job := jobstest.Job()
			job.Retry.MaxAttempts = 1
			rec := jobstest.Submit(t, q, job)
			c := jobstest.Claim(t, q, "w")
			goesOn(t, q, c)
			if err := queue.StaleAck(jobstest.Context(t), c); err != nil {
				t.Fatal(err)
			}
			if next := jobstest.Claim(t, q, "w").Record(); next.ID != rec.ID || next.Attempt != 2 {
				t.Errorf("claimed %+v", next)
			}
		})
	}
}

func settleWith(t *testing.T, c *queue.Claim, end jobs.Ended, announce func(context.Context, jobs.Record) error) {
	t.Helper()
	if rec, err := c.Settle(jobstest.Context(t), end, announce); err != nil || rec.State != jobs.Finished {
		t.Fatalf("settle: %+v, %v", rec, err)
	}
}
