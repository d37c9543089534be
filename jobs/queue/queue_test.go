package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) {
	if jobstest.IsChild() {
		jobstest.ServeChild()
	}
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

var success = jobs.Ended{Outcome: jobs.Success}

// lease is short, so that a test can wait for it to run out.
var lease = slowtest.Pace(900 * time.Millisecond)

func open(tb testing.TB, s *jobstest.Server, cfg queue.Config) *queue.Queue {
	tb.Helper()
	if cfg.Lease == 0 {
		cfg.Lease = lease
	}
	return jobstest.Queue(tb, s.Connect(), cfg)
}

func get(tb testing.TB, q *queue.Queue, id string) jobs.Record {
	tb.Helper()
	rec, err := q.Get(jobstest.Context(tb), id)
	if err != nil {
		tb.Fatal(err)
	}
	return rec
}

func settle(tb testing.TB, c *queue.Claim, end jobs.Ended) jobs.Record {
	tb.Helper()
	rec, err := c.Settle(jobstest.Context(tb), end, nil)
	if err != nil {
		tb.Fatalf("settle: %v", err)
	}
	return rec
}

// idle fails the test if a job can be claimed within d.
func idle(tb testing.TB, q *queue.Queue, d time.Duration) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	c, err := q.Claim(ctx, "idle", []string{"default"})
	if c != nil {
		tb.Fatalf("job %s was claimed, want none", c.Record().ID)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		tb.Fatalf("claim: %v, want the deadline", err)
	}
}

// idleUntil claims, for what only a claimer does, until ok. It fails the test if
// a job can be claimed meanwhile.
func idleUntil(tb testing.TB, q *queue.Queue, what string, ok func() bool) {
	tb.Helper()
	if !slowtest.Eventually(30*time.Second, 0, func() bool { idle(tb, q, 200*time.Millisecond); return ok() }) {
		tb.Fatalf("it does not come: %s", what)
	}
}

func TestSubmitClaimSettle(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	var recorded []jobs.Record
	q := open(t, s, queue.Config{Finished: func(_ context.Context, rec jobs.Record) error {
		recorded = append(recorded, rec)
		return nil
	}})
	job := jobstest.Job()
	rec := jobstest.Submit(t, q, job)
	c := jobstest.Claim(t, q, "w1")
	if got := c.Record(); got.ID != rec.ID || got.State != jobs.Executing || got.Worker != "w1" || got.Attempt != 1 {
		t.Errorf("claimed %+v, want %s executing on w1, attempt 1", got, rec.ID)
	}
	if got := c.Job().Prompt; got != job.Prompt {
		t.Errorf("prompt %q, want %q", got, job.Prompt)
	}
	if c.Epoch() == 0 || c.Previous() != nil {
		t.Errorf("epoch %d, previous %v; want an epoch and no previous attempt", c.Epoch(), c.Previous())
	}
	announced := false
	got, err := c.Settle(jobstest.Context(t), success, func(_ context.Context, rec jobs.Record) error {
		announced = rec.State == jobs.Finished
		return nil
	})
	if err != nil || got.Outcome != jobs.Success || got.Epoch != c.Epoch() {
		t.Errorf("settled %+v, %v; want success with epoch %d", got, err, c.Epoch())
	}
	if !announced || len(recorded) != 1 || recorded[0].ID != rec.ID {
		t.Errorf("announced %v, finished %v; want both once", announced, recorded)
	}
	idle(t, q, 100*time.Millisecond)
	if got := get(t, q, rec.ID[:13]); got.ID != rec.ID || got.State != jobs.Finished {
		t.Errorf("by abbreviated id: %+v, want %s finished", got, rec.ID)
	}
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	var told []jobs.Record
	var last time.Time
	hooks := queue.Hooks{WorkerLost: func(rec jobs.Record, at time.Time) { told, last = append(told, rec), at }}
	a, b := open(t, s, queue.Config{}), open(t, s, queue.Config{Hooks: hooks})
	rec := jobstest.Submit(t, a, jobstest.Job())
	begun := time.Now() // before the lease began
	lost := jobstest.Claim(t, a, "w1")
	claimed := time.Now()
	// w1 is not kept: as if it were stopped by a signal.
	c := jobstest.Claim(t, b, "w2")
	if took := time.Since(begun); took < lease*9/10 || took > lease+slowtest.Limit(4*time.Second) {
		t.Errorf("taken over after %s, want about %s", took, lease)
	}
	if got := c.Record(); got.ID != rec.ID || got.Attempt != 2 || got.Lost != 1 || got.Counted != 0 {
		t.Errorf("claimed %+v, want attempt 2, lost 1", got)
	}
	if p := c.Previous(); p == nil || p.Reason != jobs.WorkerLost {
		t.Errorf("previous %v, want worker_lost", p)
	}
	if len(told) != 1 || told[0].ID != rec.ID || told[0].Worker != "w1" || told[0].Attempt != 1 || told[0].State != jobs.Executing {
		t.Fatalf("the hook was told of %+v, want the attempt of w1 once", told)
	}
	if last.Before(begun) || last.After(claimed) {
		t.Errorf("w1 was last heard of at %v, want between %v and %v", last, begun, claimed)
	}
	if err := lost.Keep(jobstest.Context(t)); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("keep by the stopped worker: %v, want fenced", err)
	}
	if _, err := lost.Settle(jobstest.Context(t), success, nil); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("settle by the stopped worker: %v, want fenced", err)
	}
	settle(t, c, success)
	if got := get(t, b, rec.ID); got.Worker != "" || got.Epoch != c.Epoch() || got.Outcome != jobs.Success {
		t.Errorf("record %+v, want success of epoch %d", got, c.Epoch())
	}
	if len(told) != 1 {
		t.Errorf("the hook was told of %+v, want one attempt", told)
	}
}

// What an attempt has stored counts for the job as soon as it was told, also where its worker is lost; the next
// attempt adds its own.
func TestStoredBytesOutliveAWorker(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	spec := rec.Stored
	if data, err := json.Marshal(jobstest.Job()); err != nil || spec < int64(len(data)) || spec > 2*int64(len(data)) {
		t.Errorf("a new job has %d bytes stored, err %v, want its specification of about %d", spec, err, len(data))
	}
	lost := jobstest.Claim(t, q, "w1")
	lost.Stored(1000)
	lost.Stored(-1)
	if _, err := lost.Assert(jobstest.Context(t)); err != nil { // which is a heartbeat
		t.Fatal(err)
	}
	lost.Stored(5000) // nobody hears of it
	c := jobstest.Claim(t, q, "w2")
	if got := c.Record(); got.Attempt != 2 || got.Stored != spec+999 {
		t.Errorf("the second attempt began with %d bytes, want %d: %+v", got.Stored, spec+999, got)
	}
	c.Stored(500)
	settle(t, c, success)
	if got := get(t, q, rec.ID); got.Stored != spec+1499 {
		t.Errorf("%d bytes are stored, want %d", got.Stored, spec+1499)
	}
}

// A broker that is started again with a shorter lease does not take the jobs
// of workers that know the longer one.
func TestAShorterLeaseIsForNewClaims(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	a := open(t, s, queue.Config{Lease: 6 * lease})
	jobstest.Submit(t, a, jobstest.Job())
	c := jobstest.Claim(t, a, "w1")
	if got := c.Record().Lease; time.Duration(got) != 6*lease {
		t.Errorf("the record promises %v, want %v", got, 6*lease)
	}
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- c.Keep(ctx) }() // every 2 * lease
	b := open(t, s, queue.Config{Lease: lease, Upgrade: true})
	jobstest.Submit(t, b, jobstest.Job())
	settle(t, jobstest.Claim(t, b, "w2"), success) // which has upgraded the lane
	idle(t, b, 6*lease)
	cancel()
	if err := <-kept; err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
	settle(t, c, success)
}

func TestKeep(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	a, b := open(t, s, queue.Config{}), open(t, s, queue.Config{})
	jobstest.Submit(t, a, jobstest.Job())
	c := jobstest.Claim(t, a, "w1")
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan error, 1)
	go func() { kept <- c.Keep(ctx) }()
	idle(t, b, 3*lease)
	cancel()
	if err := <-kept; err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
	settle(t, c, success)
}
