package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func letters(tb testing.TB, q *queue.Queue) []jobs.DeadLetter {
	tb.Helper()
	list, err := q.DeadLetters().List(jobstest.Context(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

// runAdvisories hears what the broker gives up until the test ends.
func runAdvisories(t *testing.T, q *queue.Queue) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := q.RunAdvisories(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// The deliveries of a queue have been bounded. The job whose worker died is not
// left in the stream for ever: it ends, is found, and can be tried again.
func TestAJobThatTheBrokerGaveUp(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	cfg, finished := finishedOnce()
	q := open(t, s, cfg)
	rec := jobstest.Submit(t, q, jobstest.Job())
	js, err := jetstream.New(s.Connect())
	if err != nil {
		t.Fatal(err)
	}
	con, err := js.Consumer(jobstest.Context(t), "PS_Q_DEFAULT_P1", "w")
	if err != nil {
		t.Fatal(err)
	}
	bounded := con.CachedInfo().Config
	bounded.MaxDeliver = 1
	if _, err := js.UpdateConsumer(jobstest.Context(t), "PS_Q_DEFAULT_P1", bounded); err != nil {
		t.Fatal(err)
	}
	lost := jobstest.Claim(t, q, "w") // and never heard of again
	told, err := js.Stream(jobstest.Context(t), "PS_ADVISORY")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(jobstest.Patience); ; time.Sleep(lease / 4) {
		info, err := told.Info(jobstest.Context(t))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the broker has not given up: %+v, %v", info, err)
		}
		if info.State.Msgs > 0 {
			break
		}
	}
	s.Restart() // what the broker has said is not lost with it
	runAdvisories(t, q)
	var list []jobs.DeadLetter
	for deadline := time.Now().Add(jobstest.Patience); len(list) == 0; time.Sleep(lease / 4) {
		if list = letters(t, q); time.Now().After(deadline) {
			t.Fatalf("no dead letter; the job is %+v", get(t, q, rec.ID))
		}
	}
	if got := get(t, q, rec.ID); got.Reason != jobs.Undeliverable || !strings.Contains(got.Message, "1 deliveries") || finished.Load() != 1 {
		t.Errorf("%s %s %q, told %d times; want undeliverable, told once", got.State, got.Reason, got.Message, finished.Load())
	}
	if l := list[0]; l.ID != rec.ID || l.Kind != jobs.DeadJob || l.Reason != string(jobs.Undeliverable) {
		t.Errorf("letter %+v", l)
	}
	if _, err := lost.Settle(jobstest.Context(t), success, nil); !errors.Is(err, jobs.ErrFenced) {
		t.Errorf("settle by the lost worker: %v, want fenced", err)
	}
	if _, err := q.Retry(jobstest.Context(t), rec.ID, false, nil); err != nil {
		t.Fatal(err)
	}
	settle(t, jobstest.Claim(t, q, "w2"), success)
	if got := get(t, q, rec.ID); got.Outcome != jobs.Success {
		t.Errorf("after the retry: %+v", got)
	}
}

// The advisory may be old: a worker that lives keeps its job.
func TestAnAdvisoryDoesNotEndAJobThatIsRun(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	jobstest.Submit(t, q, jobstest.Job())
	c := jobstest.Claim(t, q, "w")
	ctx, cancel := context.WithCancel(t.Context())
	var keeping sync.WaitGroup
	keeping.Go(func() {
		if err := c.Keep(ctx); err != nil {
			t.Errorf("keep: %v", err)
		}
	})
	runAdvisories(t, q)
	advisory := `{"stream":"PS_Q_DEFAULT_P1","consumer":"w","stream_seq":1,"deliveries":3}`
	if err := s.Connect().Publish("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.PS_Q_DEFAULT_P1.w", []byte(advisory)); err != nil {
		t.Fatal(err)
	}
	pending := func() int {
		js, err := jetstream.New(s.Connect())
		if err != nil {
			t.Fatal(err)
		}
		con, err := js.Consumer(jobstest.Context(t), "PS_ADVISORY", "dispatcher")
		if err != nil {
			t.Fatal(err)
		}
		return con.CachedInfo().NumRedelivered
	}
	for deadline := time.Now().Add(jobstest.Patience); pending() == 0; time.Sleep(lease / 4) {
		if time.Now().After(deadline) {
			t.Fatal("the advisory was not looked at again")
		}
	}
	cancel()
	keeping.Wait()
	settle(t, c, success)
	if list := letters(t, q); len(list) > 0 {
		t.Errorf("dead letters: %+v", list)
	}
}

// A process that brings a job back may die after it writes the record and before
// it removes the letter. A list shows what is dead now.
func TestAJobThatIsBackIsNotListedAsDead(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	settle(t, jobstest.Claim(t, q, "w"), jobs.Billing.Ended("no credit"))
	list := letters(t, q)
	if len(list) != 1 || list[0].Record.Message != "no credit" {
		t.Fatalf("letters %+v, want one", list)
	}
	if _, err := q.Retry(jobstest.Context(t), rec.ID, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := queue.Bury(jobstest.Context(t), q, list[0]); err != nil { // as if it had not been dropped
		t.Fatal(err)
	}
	if list := letters(t, q); len(list) > 0 {
		t.Errorf("letters %+v, want none: the job is pending", list)
	}
	settle(t, jobstest.Claim(t, q, "w"), jobs.Billing.Ended("still none"))
	if list = letters(t, q); len(list) != 1 {
		t.Fatalf("letters %+v, want one", list)
	}
	if err := q.DeadLetters().Drop(jobstest.Context(t), list[0]); err != nil {
		t.Fatal(err)
	}
	if list := letters(t, q); len(list) > 0 || get(t, q, rec.ID).Reason != jobs.Billing {
		t.Errorf("after drop: letters %+v, job %+v", list, get(t, q, rec.ID))
	}
}
