package queue_test

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// A broker's clock that was set makes nobody old who is alive, and nobody
// young for ever.
func TestAClockThatWasSet(t *testing.T) {
	const promised = 300 * time.Millisecond
	for name, by := range map[string]time.Duration{"forwards": time.Hour, "backwards": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{})
			now := time.Now()
			if got := q.Age(now.Add(-time.Second), now, promised); got != time.Second {
				t.Errorf("before: %v, want 1s", got)
			}
			began := time.Now()
			written := began // before the clock was set
			got := q.Age(written, time.Now().Add(by), promised)
			if spent := time.Since(began); got >= promised && spent < promised {
				t.Errorf("right after: %v", got)
			}
			time.Sleep(promised)
			if got := q.Age(written, time.Now().Add(by), promised); got < promised {
				t.Errorf("a lease later: %v, want at least %v", got, promised)
			}
			// What is written now counts as ever.
			now = time.Now().Add(by)
			if got := q.Age(now.Add(-time.Second), now, promised); got != time.Second {
				t.Errorf("of what was written since: %v, want 1s", got)
			}
		})
	}
}

// A job whose worker is gone goes on although the broker does not offer it to
// anybody; one that is kept is left alone.
func TestAJobThatTheBrokerHoldsBack(t *testing.T) {
	const lease = time.Second
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{Lease: lease})
	jobstest.Submit(t, q, jobstest.Job())
	jobstest.Submit(t, q, jobstest.Job())
	kept, lost := jobstest.Claim(t, q, "alive"), jobstest.Claim(t, q, "gone")
	if err := lost.HoldBack(); err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	go func() { _ = kept.Keep(ctx) }() // ends with the test
	for moved := false; !moved; time.Sleep(lease / 10) {
		stranded, err := q.Stranded(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range stranded {
			switch {
			case rec.ID == kept.Record().ID:
				t.Fatalf("a job that is kept is %s: %s", rec.State, rec.Message)
			case rec.State == jobs.Pending:
				moved = true
			}
			if err := q.Enqueue(ctx, rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	again := jobstest.Claim(t, q, "next")
	if rec := again.Record(); rec.ID != lost.Record().ID || rec.Attempt != 2 || rec.Deaths != 1 {
		t.Errorf("claimed %s, attempt %d, %d deaths; want %s, 2, 1", rec.ID, rec.Attempt, rec.Deaths, lost.Record().ID)
	}
	if _, err := lost.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil); err == nil {
		t.Error("who had lost the job could settle it")
	}
}
