package queue_test

import (
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Setting the broker's clock neither makes a live worker look dead, nor keeps a
// dead one looking alive for ever.
func TestAClockThatWasSet(t *testing.T) {
	t.Parallel()
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

// A job whose worker is gone goes on although the broker offers it to no worker;
// one whose lease is renewed is left alone.
func TestAJobThatTheBrokerHoldsBack(t *testing.T) {
	t.Parallel()
	lease := slowtest.Limit(time.Second) // else a heartbeat of the one that is kept may come too late
	s := jobstest.Start(t)
	var told []jobs.Record
	hooks := queue.Hooks{WorkerLost: func(rec jobs.Record, _ time.Time) { told = append(told, rec) }}
	q := jobstest.Queue(t, s.Connect(), queue.Config{Lease: lease, Hooks: hooks})
	jobstest.Submit(t, q, jobstest.Job())
	jobstest.Submit(t, q, jobstest.Job())
	kept, lost := jobstest.Claim(t, q, "alive"), jobstest.Claim(t, q, "gone")
	if err := lost.HoldBack(); err != nil {
		t.Fatal(err)
	}
	ctx := jobstest.Context(t)
	stop := keep(kept)
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
	if len(told) != 1 || told[0].ID != lost.Record().ID || told[0].Worker != "gone" || told[0].Attempt != 1 {
		t.Errorf("the hook was told of %+v, want the first attempt of %s once", told, lost.Record().ID)
	}
	if _, err := lost.Settle(ctx, jobs.Ended{Outcome: jobs.Success}, nil); err == nil {
		t.Error("who had lost the job could settle it")
	}
	if err := stop(); err != nil {
		t.Errorf("keep: %v, want nil", err)
	}
}

// A back-off that began while the broker's clock was ahead is over when it
// would be, though the record names a time that is far off.
func TestABackOffIsNoLongerThanItWasMeant(t *testing.T) {
	t.Parallel()
	const lease = time.Second / 5
	nc := jobstest.Start(t).Connect()
	q := jobstest.Queue(t, nc, queue.Config{Lease: lease})
	jobstest.Submit(t, q, jobstest.Job())
	ctx := jobstest.Context(t)
	rec, err := jobstest.Claim(t, q, "w").Settle(ctx, jobs.ModelUnavailable.Ended("busy"), nil)
	if err != nil {
		t.Fatal(err)
	}
	began, far := time.Now(), time.Now().Add(time.Hour)
	rewrite(t, nc, rec, func(fields map[string]any) { fields["not_before"] = far })
	for {
		stranded, err := q.Stranded(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(stranded) == 0 {
			time.Sleep(lease)
			continue
		}
		if got := stranded[0]; got.State != jobs.Pending || got.NotBefore != nil || time.Since(began) < rec.Backoff() {
			t.Errorf("after %v: %s until %v; want pending after %v", time.Since(began), got.State, got.NotBefore, rec.Backoff())
		}
		return
	}
}

// A wait that the provider has named is not cut short: the job is not taken for one whose back-off is long over.
func TestAWaitThatWasNamedIsNotCutShort(t *testing.T) {
	t.Parallel()
	const lease = time.Second / 5
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{Lease: lease})
	jobstest.Submit(t, q, jobstest.Job())
	ctx := jobstest.Context(t)
	end := jobs.QuotaWaiting.Ended("try again in two hours")
	end.Wait = 2 * time.Hour
	rec, err := jobstest.Claim(t, q, "w").Settle(ctx, end, nil)
	if err != nil {
		t.Fatal(err)
	}
	for limit := rec.Backoff() + 2*queue.Silence*lease; limit > 0; limit -= lease {
		stranded, err := q.Stranded(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(stranded) > 0 {
			t.Fatalf("it is to wait until %v, and moved on at %v", rec.NotBefore, time.Now())
		}
		time.Sleep(lease)
	}
}

// A watcher of the records need not look for stranded jobs to know since when a
// job has not moved.
func TestAWatchKnowsSinceWhen(t *testing.T) {
	t.Parallel()
	const lease = time.Second / 5
	s := jobstest.Start(t)
	q, other := jobstest.Queue(t, s.Connect(), queue.Config{Lease: lease}), jobstest.Queue(t, s.Connect(), queue.Config{Lease: lease})
	ctx := jobstest.Context(t)
	var watch sync.WaitGroup
	watch.Go(func() {
		for change, err := range q.Changes(ctx, func() {}) {
			if err != nil || change.Record.State == jobs.Executing {
				return
			}
		}
	})
	jobstest.Submit(t, other, jobstest.Job())
	c := jobstest.Claim(t, other, "gone")
	if err := c.HoldBack(); err != nil {
		t.Fatal(err)
	}
	watch.Wait()
	time.Sleep(queue.Silence*lease + lease)
	if stranded, err := q.Stranded(ctx); err != nil || len(stranded) != 1 {
		t.Errorf("%v, %v; want the one whose worker is silent", stranded, err)
	}
}
