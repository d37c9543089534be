package standing_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// The position is the order in which jobs are claimed: lanes first, then the
// queue's own order, in which what was lost is before what is new.
func TestWhyTellsThePosition(t *testing.T) {
	t.Parallel()
	lease := slowtest.Pace(900 * time.Millisecond)
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{Lease: lease})
	if err := q.Workers().Present(jobstest.Context(t), why.Worker{Name: "w", Queues: []string{"default"}, Slots: 1, Busy: 1}); err != nil {
		t.Fatal(err)
	}
	submit := func(priority jobs.Priority, batch string) jobs.Record {
		job := jobstest.Job()
		job.Batch, job.Priority = batch, priority
		return jobstest.Submit(t, q, job)
	}
	lost := submit(jobs.Normal, "")
	claim := jobstest.Claim(t, q, "dies")
	alive, die := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- claim.Keep(alive) }()
	if err := q.Hold(jobstest.Context(t), jobs.Hold{Kind: jobs.HoldBatch, Name: "held"}); err != nil {
		t.Fatal(err)
	}
	submit(jobs.High, "held") // out of the way
	first, second := submit(jobs.Normal, ""), submit(jobs.Normal, "")
	low, high := submit(jobs.Low, ""), submit(jobs.High, "")
	standing := func(rec jobs.Record) why.Standing {
		s, err := q.Standings().Why(jobstest.Context(t), rec.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	positions := func() (list []int) {
		for _, rec := range []jobs.Record{high, first, second, low} {
			s := standing(rec)
			if s.Constraint != why.KeptSlots {
				t.Errorf("got %+v, want %s", s, why.KeptSlots)
			}
			list = append(list, s.Position)
		}
		return list
	}
	if got := positions(); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("positions %v, want 1 2 3 4", got)
	}
	die()
	if err := <-kept; err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(jobstest.Patience); standing(lost).Constraint != why.KeptLost; time.Sleep(lease / 10) {
		if time.Now().After(deadline) {
			t.Fatal("the lease does not run out")
		}
	}
	if got := positions(); !slices.Equal(got, []int{1, 3, 4, 5}) {
		t.Errorf("positions %v, want 1 3 4 5: what was lost is before what is new", got)
	}
	for i, want := range []jobs.Record{high, lost, first, second, low} {
		c := jobstest.Claim(t, q, "w")
		if c.Record().ID != want.ID {
			t.Errorf("claim %d got %s, want %s", i, c.Record().ID, want.ID)
		}
		if _, err := c.Settle(jobstest.Context(t), jobs.Ended{Outcome: jobs.Success}, nil); err != nil {
			t.Fatal(err)
		}
	}
}
