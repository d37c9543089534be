package delivery_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/delivery"
	"github.com/penstock-run/penstock/jobs/internal/lane"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/schedule"
)

// claimers returns claimers of the queue "default", and how to answer for what they get.
func claimers(t *testing.T, s *jobstest.Server, lease time.Duration) (*delivery.Claimers, delivery.Deliveries) {
	t.Helper()
	names, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.New(s.Connect(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := delivery.New(conn, names)
	return all.Claimers(delivery.Config{
		Queues: []string{"default"}, Lanes: lane.New(conn, names, lane.Layout{Lease: lease, Replicas: 1}), Lease: lease,
		Caps:  func(context.Context) func() (schedule.Caps, error) { return nil },
		Ready: func(context.Context) error { return nil },
	}), all
}

// isOf fails unless a message is a job's.
func isOf(t *testing.T, d delivery.Delivery, rec jobs.Record) {
	t.Helper()
	if !strings.HasSuffix(d.Subject, "."+rec.ID) || d.Class != rec.Class || d.Lane != rec.Lane {
		t.Fatalf("got %+v, want the message of job %s", d, rec.ID)
	}
}

// One claimer asks for all of its process. One that stops waiting just when it is handed a
// job, as at the end of a worker, gives it back: the broker would take it for handed out
// until the lease is over, which is longer here than the test's patience.
func TestAClaimerThatStopsGivesItsJobBack(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{Lease: time.Hour})
	own, all := claimers(t, s, time.Hour)
	stopped := 0
	for range 10 {
		rec := jobstest.Submit(t, q, jobstest.Job())
		d, took, err := delivery.CancelAndHand(jobstest.Context(t), own)
		if err != nil {
			t.Fatal(err)
		}
		if !took {
			stopped++
			if d, err = own.Wait(jobstest.Context(t)); err != nil {
				t.Fatalf("a job that was handed to one that stopped: %v", err)
			}
		}
		isOf(t, d, rec)
		if err := all.Ack(jobstest.Context(t), d); err != nil {
			t.Fatal(err)
		}
	}
	if stopped == 0 {
		t.Error("no claimer stopped without a job")
	}
}

// As many claims as there are free slots are made at once. The requests of this process to the
// broker's consumers are counted.
func TestFreeSlotsAreFilledByOneRequest(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{})
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
	own, _ := claimers(t, s, 10*time.Second)
	seen := map[string]bool{}
	var mu sync.Mutex
	release := delivery.HoldAsking(jobstest.Context(t), own)
	var waiting sync.WaitGroup
	for range slots {
		waiting.Go(func() {
			d, err := own.Wait(jobstest.Context(t))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[d.Subject] {
				t.Errorf("%s is handed out twice", d.Subject)
			}
			seen[d.Subject] = true
		})
	}
	release(slots)
	waiting.Wait()
	if err := watch.Flush(); err != nil {
		t.Fatal(err)
	}
	// One for each lane that is empty, and one for each share of the lanes.
	if n := asked.Load(); n > 6 {
		t.Errorf("%d claimers sent %d requests", slots, n)
	}
}
