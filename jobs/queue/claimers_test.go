package queue_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// One claimer asks for all of its process. One that stops waiting just when it is handed a
// job, as at the end of a worker, gives it back: the broker would take it for handed out
// until the lease is over, which is longer here than the test's patience.
func TestAClaimerThatStopsGivesItsJobBack(t *testing.T) {
	t.Parallel()
	q := open(t, jobstest.Start(t), queue.Config{Lease: time.Hour})
	stopped := 0
	for range 10 {
		rec := jobstest.Submit(t, q, jobstest.Job())
		c, err := queue.CancelAndHand(jobstest.Context(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil {
			stopped++
			if c, err = q.Claim(jobstest.Context(t), "w", []string{"default"}); err != nil {
				t.Fatalf("a job that was handed to one that stopped: %v", err)
			}
		}
		if c.Record().ID != rec.ID {
			t.Fatalf("claimed %s, want %s", c.Record().ID, rec.ID)
		}
		settle(t, c, success)
	}
	if stopped == 0 {
		t.Error("no claimer stopped without a job")
	}
}

// As many claims as there are free slots are made at once: none waits for the writes of
// another one. The requests of this process to the broker's consumers are counted.
func TestFreeSlotsAreFilledByOneRequest(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	const slots = 48
	for range slots {
		jobstest.Submit(t, q, jobstest.Job())
	}
	var asked atomic.Int32
	watch := s.Connect()
	sub, err := watch.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*nats.Msg) { asked.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := watch.Flush(); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var mu sync.Mutex
	release := queue.HoldAsking(jobstest.Context(t), q)
	var claimers sync.WaitGroup
	for range slots {
		claimers.Go(func() {
			c, err := q.Claim(jobstest.Context(t), "w", []string{"default"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[c.Record().ID] || c.Record().State != jobs.Executing {
				t.Errorf("job %s is claimed twice, or %s", c.Record().ID, c.Record().State)
			}
			seen[c.Record().ID] = true
		})
	}
	release(slots)
	claimers.Wait()
	if err := watch.Flush(); err != nil {
		t.Fatal(err)
	}
	// One for each lane that is empty, and one for each share of the lanes.
	if n := asked.Load(); n > 6 {
		t.Errorf("%d claimers sent %d requests", slots, n)
	}
}

// Each job is notified to all workers that wait, and one gets it. Were all of them to ask for
// it, a thousand would keep the broker from its work: a few do, and those that were busy.
func TestFewOfManyIdleWorkersAsk(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	const workers, warm, seen = 60, 40, 20
	claimed := make(chan jobs.Record)
	for range workers {
		q := open(t, s, queue.Config{Lease: time.Hour})
		go func() {
			for {
				c, err := q.Claim(t.Context(), "w", []string{"default"})
				if err != nil {
					return
				}
				select {
				case claimed <- c.Record():
				case <-t.Context().Done():
					return
				}
			}
		}()
	}
	var asked atomic.Int32
	watch := s.Connect()
	if _, err := watch.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*nats.Msg) { asked.Add(1) }); err != nil {
		t.Fatal(err)
	}
	q := open(t, s, queue.Config{Lease: time.Hour})
	began := time.Now()
	for n := range warm + seen {
		if n == warm {
			asked.Store(0)
			began = time.Now()
		}
		time.Sleep(30 * time.Millisecond) // they look again when they were late for the last one
		rec := jobstest.Submit(t, q, jobstest.Job())
		select {
		case got := <-claimed:
			if got.ID != rec.ID {
				t.Fatalf("claimed %s, want %s", got.ID, rec.ID)
			}
		case <-jobstest.Context(t).Done():
			t.Fatal("a job is not claimed")
		}
	}
	// Each looks into three lanes every two seconds, whatever happens.
	if n, calm := int(asked.Load()), int(time.Since(began).Seconds()*workers*3/2); n > calm+seen*workers/2 {
		t.Errorf("%d requests of %d workers for %d jobs, and %d would be sent without one", n, workers, seen, calm)
	}
}
