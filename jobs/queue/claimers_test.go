package queue_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

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
