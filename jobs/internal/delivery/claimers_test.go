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
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// claimers returns claimers of the queue "default", and how to answer for what they get.
func claimers(t *testing.T, s *jobstest.Server, lease time.Duration) (*delivery.Claimers, delivery.Deliveries) {
	t.Helper()
	return claimersOf(t, s.Connect(), lease)
}

// claimersOf are those of a process with a connection and labels.
func claimersOf(t *testing.T, nc *nats.Conn, lease time.Duration, labels ...string) (*delivery.Claimers, delivery.Deliveries) {
	t.Helper()
	names, err := subject.New("")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := wire.New(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	all := delivery.New(conn, names)
	return all.Claimers(delivery.Config{
		Queues: []string{"default"}, Labels: labels, Lanes: lane.New(conn, names, lane.Layout{Lease: lease, Replicas: 1}), Lease: lease,
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

// Of many processes that wait, few hear of each job. One with other labels than the rest hears
// of what only it can do.
func TestACrowdIsNotNotified(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{})
	const many = 100
	got := make(chan delivery.Delivery)
	var conns []*nats.Conn
	wait := func(labels ...string) {
		nc := s.Connect()
		conns = append(conns, nc)
		own, all := claimersOf(t, nc, time.Hour, labels...)
		go func() {
			for {
				d, err := own.Wait(t.Context())
				if err != nil || all.Ack(t.Context(), d) != nil {
					return // the test ends
				}
				got <- d
			}
		}()
	}
	for range many {
		wait()
	}
	wait("gpu")
	hears := func(needs ...string) (messages uint64, took time.Duration) {
		t.Helper()
		sum := func() (all uint64) {
			for _, nc := range conns {
				all += nc.Stats().InMsgs
			}
			return all
		}
		before, began := sum(), time.Now()
		job := jobstest.Job()
		job.Needs = needs
		rec := jobstest.Submit(t, q, job)
		select {
		case d := <-got:
			isOf(t, d, rec)
		case <-t.Context().Done():
			t.Fatal("no claimer got the job")
		}
		took = time.Since(began)
		after := sum()
		for quiet := 0; quiet < 3; quiet++ { // they wait again: who is not waiting is not notified
			time.Sleep(time.Millisecond)
			if now := sum(); now != after {
				after, quiet = now, 0
			}
		}
		return after - before, took
	}
	for range 100 {
		hears() // so that they notice how many they are
	}
	const times = 20
	var messages uint64
	for range times {
		more, _ := hears()
		messages += more
	}
	if messages > times*many*6/10 { // each answers with more messages than one
		t.Errorf("%d claimers heard %d messages for each job", many, messages/times)
	}
	for range 4 {
		if _, took := hears("gpu"); took > slowtest.Limit(delivery.Poll/2) {
			t.Errorf("the only one that can do a job took it after %v", took)
		}
	}
}

// One of a crowd looks seldom without a notification, so it hears of a class of which there
// was no job before, and of a job that another one gives back.
func TestACrowdHearsOfWhatIsNew(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := jobstest.Queue(t, s.Connect(), queue.Config{})
	needs := []string{"arm", "docker", "gpu"}
	own, all := claimersOf(t, s.Connect(), time.Hour, needs...)
	offered := func(what string, offer func()) delivery.Delivery {
		t.Helper()
		delivery.JoinCrowd(own)
		got := make(chan delivery.Delivery, 1)
		go func() {
			if d, err := own.Wait(t.Context()); err == nil {
				got <- d
			}
		}()
		time.Sleep(50 * time.Millisecond) // it has found nothing, and waits
		began := time.Now()
		offer()
		d := <-got
		if took := time.Since(began); took > slowtest.Limit(delivery.Poll/2) {
			t.Errorf("%s was taken after %v", what, took)
		}
		return d
	}
	for i := range needs {
		job := jobstest.Job()
		job.Needs = needs[:i+1]
		d := offered("the first job of a class", func() { jobstest.Submit(t, q, job) })
		d = offered("what was given back", func() {
			if err := all.Again(d); err != nil {
				t.Fatal(err)
			}
		})
		if err := all.Ack(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}
