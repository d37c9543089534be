package queue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func batchJob(batch string) jobs.Job {
	job := jobstest.Job()
	job.Batch = batch
	return job
}

func hold(tb testing.TB, q *queue.Queue, h jobs.Hold) {
	tb.Helper()
	if err := q.Hold(jobstest.Context(tb), h); err != nil {
		tb.Fatal(err)
	}
}

func release(tb testing.TB, q *queue.Queue, batch string) {
	tb.Helper()
	if err := q.Release(jobstest.Context(tb), jobs.HoldBatch, batch, q.List); err != nil {
		tb.Fatal(err)
	}
}

// parked claims nothing until so many jobs of a batch are parked: a claimer that
// is offered one parks it.
func parked(tb testing.TB, q *queue.Queue, batch string, n int) (list []jobs.Record) {
	tb.Helper()
	idleUntil(tb, q, fmt.Sprint(n, " jobs are parked"), func() bool {
		var err error
		if list, err = q.List(jobstest.Context(tb), record.Filter{Batch: batch, State: jobs.Waiting}); err != nil {
			tb.Fatal(err)
		}
		return len(list) == n
	})
	return list
}

// The jobs of a held batch do not stand in the way of others, and cost the
// broker one delivery each, however long the hold lasts.
func TestAHeldBatchIsOutOfTheWay(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	for range 3 {
		jobstest.Submit(t, q, batchJob("b"))
	}
	hold(t, q, jobs.Hold{Kind: jobs.HoldBatch, Name: "b", By: "test"})
	jobstest.Submit(t, q, batchJob("b"))
	other := jobstest.Submit(t, q, batchJob("another"))
	c := jobstest.Claim(t, q, "w")
	if c.Record().ID != other.ID {
		t.Fatalf("claimed %+v, want the one of another batch", c.Record())
	}
	settle(t, c, success)
	idle(t, q, lease+500*time.Millisecond)
	for _, rec := range parked(t, q, "b", 4) {
		if rec.Hold != "batch" || rec.Message != "batch b is paused" || rec.Attempt != 0 {
			t.Errorf("parked %+v", rec)
		}
	}
	js, err := jetstream.New(s.Connect())
	if err != nil {
		t.Fatal(err)
	}
	con, err := js.Consumer(jobstest.Context(t), "PS_Q_DEFAULT_P1", "w")
	if err != nil {
		t.Fatal(err)
	}
	if info := con.CachedInfo(); info.Delivered.Consumer != 5 || info.NumRedelivered != 0 || info.NumAckPending != 0 {
		t.Errorf("%d deliveries, %d again, %d open; want five, none, none", info.Delivered.Consumer, info.NumRedelivered, info.NumAckPending)
	}
	if left := repairsLeft(t, q); len(left) > 0 {
		t.Errorf("stranded while the hold is in force: %v", left)
	}
	release(t, q, "b")
	for range 4 {
		settle(t, jobstest.Claim(t, q, "w"), success)
	}
	parked(t, q, "b", 0)
}

// A hold that ends by itself, or whose release died half way, strands no job.
func TestAHoldThatIsOverStrandsNobody(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	soon := time.Now().Add(slowtest.Limit(3 * lease)) // by then the job is parked
	hold(t, q, jobs.Hold{Kind: jobs.HoldBatch, Name: "b", Until: &soon})
	rec := jobstest.Submit(t, q, batchJob("b"))
	parked(t, q, "b", 1)
	if got := repaired(t, q); got[0].ID != rec.ID || time.Now().Before(soon) {
		t.Errorf("%v came back before %v", got, soon)
	}
	c := jobstest.Claim(t, q, "w")
	if got := c.Record(); got.ID != rec.ID || got.Hold != "" || got.Message != "" {
		t.Errorf("claimed %+v", got)
	}
	settle(t, c, success)
}

// What was lost with its worker while the batch was held begins after it.
func TestALostJobOfAHeldBatchIsParked(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	var lost atomic.Int32
	q := open(t, s, queue.Config{Hooks: queue.Hooks{WorkerLost: func(jobs.Record, time.Time) { lost.Add(1) }}})
	jobstest.Submit(t, q, batchJob("b"))
	jobstest.Claim(t, q, "dies")
	hold(t, q, jobs.Hold{Kind: jobs.HoldBatch, Name: "b"})
	if got := parked(t, q, "b", 1)[0]; got.Reason != jobs.WorkerLost || got.Deaths != 1 || got.Worker != "" {
		t.Errorf("parked %+v, want it to tell of the lost worker", got)
	}
	release(t, q, "b")
	c := jobstest.Claim(t, q, "w")
	if p := c.Previous(); p == nil || p.Reason != jobs.WorkerLost || c.Record().Attempt != 2 {
		t.Errorf("attempt %d after %+v", c.Record().Attempt, p)
	}
	settle(t, c, success)
	if n := lost.Load(); n != 1 {
		t.Errorf("the hook was told of %d lost workers, want 1", n)
	}
}

// The jobs of a cancelled batch end, also those that come later.
func TestACancelledBatch(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	hold(t, q, jobs.Hold{Kind: jobs.HoldBatch, Name: "b", By: "somebody", Cancel: true})
	rec := jobstest.Submit(t, q, batchJob("b"))
	var got jobs.Record
	idleUntil(t, q, "the next claim ends it", func() bool {
		got = get(t, q, rec.ID)
		return got.State == jobs.Finished && finished.Load() > 0
	})
	if got.Outcome != jobs.Cancellation || got.Message != "cancelled by somebody" || finished.Load() != 1 {
		t.Errorf("%+v, told %d times; want a cancellation, told once", got, finished.Load())
	}
	release(t, q, "b")
	jobstest.Submit(t, q, batchJob("b"))
	settle(t, jobstest.Claim(t, q, "w"), success)
}

func TestHoldRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{})
	for _, h := range []jobs.Hold{{Kind: "worker", Name: "w"}, {Kind: jobs.HoldQueue, Name: "*"}, {Kind: jobs.HoldBatch, Name: "a.b"}} {
		if err := q.Hold(jobstest.Context(t), h); err == nil {
			t.Errorf("%+v is held", h)
		}
		if err := q.Release(jobstest.Context(t), h.Kind, h.Name, q.List); err == nil {
			t.Errorf("%+v is released", h)
		}
	}
}
