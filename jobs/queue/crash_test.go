package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// repaired enqueues what is stranded, until there is something.
func repaired(tb testing.TB, q *queue.Queue) []jobs.Record {
	tb.Helper()
	for deadline := time.Now().Add(jobstest.Patience); ; time.Sleep(lease / 4) {
		stranded, err := q.Stranded(jobstest.Context(tb))
		if err != nil {
			tb.Fatal(err)
		}
		for _, rec := range stranded {
			if err := q.Enqueue(jobstest.Context(tb), rec); err != nil {
				tb.Fatal(err)
			}
		}
		if len(stranded) > 0 {
			return stranded
		}
		if time.Now().After(deadline) {
			tb.Fatal("nothing was found stranded")
		}
	}
}

// finishedOnce returns a config whose hook counts, and the counter.
func finishedOnce() (queue.Config, *atomic.Int32) {
	var n atomic.Int32
	return queue.Config{Finished: func(context.Context, jobs.Record) error {
		n.Add(1)
		return nil
	}}, &n
}

func TestCrashBetweenRecordAndMessage(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec, _, err := q.Accept(jobstest.Context(t), jobstest.Job())
	if err != nil {
		t.Fatal(err)
	}
	if fresh, err := q.Stranded(jobstest.Context(t)); err != nil || len(fresh) > 0 {
		t.Errorf("stranded at once: %v, %v; want none, its submitter may be alive", fresh, err)
	}
	if got := repaired(t, q); len(got) != 1 || got[0].ID != rec.ID {
		t.Errorf("stranded %v, want %s", got, rec.ID)
	}
	settle(t, jobstest.Claim(t, q, "w"), success)
	idle(t, q, 100*time.Millisecond)
}

// A consumer that is ahead of its stream, as after a full disk, offers nothing
// of what lies before it.
func TestAForgottenMessageIsSentAgain(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	forgotten := jobstest.Submit(t, q, jobstest.Job())
	var reset struct {
		Seq uint64 `json:"reset_seq"`
	}
	answer, err := s.Connect().Request("$JS.API.CONSUMER.RESET.PS_Q_DEFAULT_P1.w", []byte(`{"seq":2}`), jobstest.Patience)
	if err != nil || json.Unmarshal(answer.Data, &reset) != nil || reset.Seq != 2 {
		t.Fatalf("reset: %v, %s", err, answer.Data)
	}
	waiting := jobstest.Submit(t, q, jobstest.Job())
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != waiting.ID {
		t.Fatalf("claimed %s, want %s: the first is not forgotten", c.Record().ID, waiting.ID)
	} else {
		settle(t, c, success)
	}
	if got := repaired(t, q); len(got) != 1 || got[0].ID != forgotten.ID {
		t.Errorf("stranded %v, want %s", got, forgotten.ID)
	}
	settle(t, jobstest.Claim(t, q, "w"), success)
	idle(t, q, 100*time.Millisecond)
}

func TestEnqueueTwiceIsOnce(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	if err := q.Enqueue(jobstest.Context(t), rec); err != nil {
		t.Errorf("enqueue again: %v", err)
	}
	c := jobstest.Claim(t, q, "w")
	if err := q.Enqueue(jobstest.Context(t), rec); err != nil {
		t.Errorf("enqueue while it runs: %v", err)
	}
	idle(t, q, 100*time.Millisecond)
	settle(t, c, success)
	idle(t, q, 100*time.Millisecond)
}

func TestKey(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	job.Key = "gh-acme-web-17"
	first := jobstest.Submit(t, q, job)
	again, duplicate, err := q.Accept(jobstest.Context(t), job)
	if err != nil || !duplicate || again.ID != first.ID {
		t.Errorf("second submission: %s, %v, %v; want the duplicate %s", again.ID, duplicate, err, first.ID)
	}
	other := job
	other.Key = "gh-acme-web-18"
	if rec, duplicate, err := q.Accept(jobstest.Context(t), other); err != nil || duplicate || rec.ID == first.ID {
		t.Errorf("another key: %s, %v, %v; want a new job", rec.ID, duplicate, err)
	}
}

func TestKeySubmittedByManyAtOnce(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	job.Key = "same"
	var wg sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		wg.Go(func() {
			rec, _, err := q.Accept(jobstest.Context(t), job)
			if err != nil {
				t.Error(err)
			}
			ids[i] = rec.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("jobs %s and %s, want one", id, ids[0])
		}
	}
	if all, err := q.List(jobstest.Context(t), record.Filter{}); err != nil || len(all) != 1 {
		t.Errorf("%d jobs, %v; want 1", len(all), err)
	}
}

// The submitter dies after it has taken the key and before it has made the
// record. The next submit of the same key brings that job on.
func TestCrashBetweenKeyAndRecord(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	job := jobstest.Job()
	job.Key, job.Prompt = "k", "as first written"
	dead := jobs.NewID()
	if err := queue.TakeKey(jobstest.Context(t), q, dead, job); err != nil {
		t.Fatal(err)
	}
	job.Prompt = "as written later"
	rec := jobstest.Submit(t, q, job)
	if rec.ID != dead {
		t.Errorf("job %s, want %s, which has the key", rec.ID, dead)
	}
	if got := jobstest.Claim(t, q, "w").Job().Prompt; got != "as first written" {
		t.Errorf("prompt %q, want the first one", got)
	}
}

func TestAcceptAsIsIdempotent(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	id := jobs.NewID()
	for i, want := range []bool{false, true} {
		rec, duplicate, err := q.AcceptAs(jobstest.Context(t), id, jobstest.Job(), "", nil)
		if err != nil || rec.ID != id || duplicate != want {
			t.Errorf("try %d: %s, %v, %v; want %s, %v", i+1, rec.ID, duplicate, err, id, want)
		}
	}
}

// The record is terminal, but its worker died before it said so.
func TestCrashBetweenCommitAndAcknowledgement(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	a, b := open(t, s, queue.Config{}), open(t, s, cfg)
	rec := jobstest.Submit(t, a, jobstest.Job())
	c := jobstest.Claim(t, a, "w1")
	died := errors.New("died")
	if _, err := c.Settle(jobstest.Context(t), success, func(context.Context, jobs.Record) error { return died }); !errors.Is(err, died) {
		t.Fatalf("settle: %v, want it to stop at the announcement", err)
	}
	idleUntil(t, b, "the end is told", func() bool { return finished.Load() > 0 })
	if got := get(t, b, rec.ID); got.Outcome != jobs.Success || got.Attempt != 1 {
		t.Errorf("record %+v, want the success of attempt 1", got)
	}
	if finished.Load() != 1 {
		t.Errorf("finished %d times, want 1", finished.Load())
	}
	if left := repairsLeft(t, b); len(left) > 0 {
		t.Errorf("stranded %v, want none", left)
	}
}

// The submitter dies before the job has its message or its schedule. A client
// cancels the job, and dies before it says so: the next process to find the job
// says so.
func TestCrashInTheCancelOfAJobWithoutMessage(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	died := errors.New("died")
	a := open(t, s, queue.Config{Finished: func(context.Context, jobs.Record) error { return died }})
	ready, delayed := jobstest.Job(), jobstest.Job()
	delayed.RunAt = new(time.Now().Add(time.Hour))
	var ids []string
	for _, job := range []jobs.Job{ready, delayed} {
		rec, _, err := a.Accept(jobstest.Context(t), job)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Cancel(jobstest.Context(t), rec.ID, "a person"); !errors.Is(err, died) {
			t.Fatalf("cancel: %v, want it to stop before it is told", err)
		}
		ids = append(ids, rec.ID)
	}
	cfg, finished := finishedOnce()
	b := open(t, s, cfg)
	idleUntil(t, b, "both ends are told", func() bool { return finished.Load() >= 2 })
	for _, id := range ids {
		if got := get(t, b, id); got.Outcome != jobs.Cancellation {
			t.Errorf("record %+v, want a cancellation", got)
		}
	}
	if n := finished.Load(); n != 2 {
		t.Errorf("told %d ends, want 2", n)
	}
}

func repairsLeft(tb testing.TB, q *queue.Queue) []jobs.Record {
	tb.Helper()
	left, err := q.Stranded(jobstest.Context(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return left
}

func TestSettleMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	fault := jobstest.FailNth(1)
	announce := func(context.Context, jobs.Record) error { return fault.Check("announce") }
	if _, err := c.Settle(jobstest.Context(t), success, announce); err == nil {
		t.Fatal("settle: nil, want the fault")
	}
	if rec, err := c.Settle(jobstest.Context(t), success, announce); err != nil || rec.Outcome != jobs.Success {
		t.Errorf("settle again: %+v, %v; want success", rec, err)
	}
	if finished.Load() != 1 {
		t.Errorf("finished %d times, want 1", finished.Load())
	}
	idle(t, q, lease+time.Second)
}

// A worker that has lost its lease acknowledges all the same, and the message
// of the attempt that runs now is gone.
func TestStaleAcknowledgementLosesNothing(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	a, b := open(t, s, queue.Config{}), open(t, s, queue.Config{})
	runDue(t, b) // a second death waits a while
	rec := jobstest.Submit(t, a, jobstest.Job())
	zombie := jobstest.Claim(t, a, "w1")
	second := jobstest.Claim(t, b, "w2")
	if err := queue.StaleAck(jobstest.Context(t), zombie); err != nil {
		t.Fatal(err)
	}
	// Now the second worker dies too: no message brings the job back.
	if got := repaired(t, b); len(got) != 1 || got[0].ID != rec.ID {
		t.Errorf("stranded %v, want %s", got, rec.ID)
	}
	third := jobstest.Claim(t, b, "w3")
	if got := third.Record(); got.ID != rec.ID || got.Attempt != 3 {
		t.Errorf("claimed %+v, want attempt 3", got)
	}
	if _, err := second.Settle(jobstest.Context(t), success, nil); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("settle by the second worker: %v, want fenced", err)
	}
	settle(t, third, success)
}

// The same, but the worker lives: its attempt ends well without a message.
func TestSettleWithoutMessage(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w1")
	if err := queue.StaleAck(jobstest.Context(t), c); err != nil {
		t.Fatal(err)
	}
	// Its own acknowledgement may or may not be answered.
	if _, err := c.Settle(jobstest.Context(t), success, nil); errors.Is(err, jobs.ErrFenced) {
		t.Errorf("settle: %v, want it to be stored", err)
	}
	if got := get(t, q, rec.ID); got.Outcome != jobs.Success {
		t.Errorf("record %+v, want success", got)
	}
}

// Workers may die under a job any number of times, as long as its attempts get further.
func TestDeathsBeforeProgressAreForgotten(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for leases and back-offs")
	}
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{Lease: 200 * time.Millisecond})
	runDue(t, q)
	rec := jobstest.Submit(t, q, jobstest.Job())
	for range jobs.MaxDeaths - 1 {
		jobstest.Claim(t, q, "w")
	}
	c := jobstest.Claim(t, q, "w")
	if got := c.Record().Deaths; got != jobs.MaxDeaths-1 {
		t.Fatalf("%d deaths, want %d", got, jobs.MaxDeaths-1)
	}
	c.Progressed()
	stop := keep(c)
	idleUntil(t, q, "the deaths are forgotten", func() bool { return get(t, q, rec.ID).Deaths == 0 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if next := jobstest.Claim(t, q, "w").Record(); next.Attempt != jobs.MaxDeaths+1 || next.Deaths != 1 || next.Lost != jobs.MaxDeaths {
		t.Errorf("attempt %d after %d deaths and %d lost attempts", next.Attempt, next.Deaths, next.Lost)
	}
}

func TestJobThatKillsItsWorkersEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for leases and back-offs")
	}
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	cfg.Lease = 200 * time.Millisecond
	q := open(t, s, cfg)
	runDue(t, q)
	rec := jobstest.Submit(t, q, jobstest.Job())
	for n := 1; n <= jobs.MaxDeaths; n++ {
		c := jobstest.Claim(t, q, "w")
		if got := c.Record().Attempt; got != n {
			t.Fatalf("attempt %d, want %d", got, n)
		}
		// Also of an attempt that had to wait for its turn.
		if p := c.Previous(); (p != nil) != (n > 1) || p != nil && p.Reason != jobs.WorkerLost {
			t.Errorf("attempt %d: the one before ended as %+v, want a lost worker", n, p)
		}
	}
	idleUntil(t, q, "the end is told", func() bool { return finished.Load() > 0 })
	got := get(t, q, rec.ID)
	if got.Outcome != jobs.Error || got.Reason != jobs.WorkerLost || got.Deaths != jobs.MaxDeaths || got.Counted != 0 {
		t.Errorf("record %+v, want worker_lost after %d, and nothing counted", got, jobs.MaxDeaths)
	}
	if !strings.Contains(got.Message, "4 workers died") {
		t.Errorf("message %q does not say how often", got.Message)
	}
	if finished.Load() != 1 {
		t.Errorf("finished %d times, want 1", finished.Load())
	}
	if dead, err := q.DeadLetters().List(jobstest.Context(t)); err != nil || len(dead) != 1 || dead[0].Record.ID != rec.ID {
		t.Errorf("dead letters %v, %v; want that of %s", dead, err, rec.ID)
	}
}

// The broker delivers the message of a job whose worker is alive: after a
// crash of its own, or because of a stale word. The job is left alone, and
// taken over all the same when its worker dies later.
func TestFreshHeartbeatIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	var again atomic.Int32
	cfg := queue.Config{Hooks: queue.Hooks{Redelivered: func(jobs.Record) { again.Add(1) }}}
	a, b := open(t, s, queue.Config{}), open(t, s, cfg)
	jobstest.Submit(t, a, jobstest.Job())
	c := jobstest.Claim(t, a, "w1")
	if err := queue.GiveBack(c); err != nil {
		t.Fatal(err)
	}
	idle(t, b, lease/2)
	if again.Load() == 0 {
		t.Error("the message was not delivered again")
	}
	if got := jobstest.Claim(t, b, "w2").Record(); got.Attempt != 2 || got.Lost != 1 {
		t.Errorf("claimed %+v, want attempt 2 after one lost", got)
	}
}
