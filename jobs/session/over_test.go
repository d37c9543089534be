package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/session"
)

// A follower that has seen a job's end and comes back with the number after it
// does not wait for an event that will never come.
func TestFollowFromBehindTheEndEnds(t *testing.T) {
	log := jobstest.Log(t, jobstest.Start(t).Connect())
	at := time.Now().UTC()
	rec := jobs.Record{ID: jobs.NewID(), State: jobs.Finished, Outcome: jobs.Success, Finished: &at}
	rec.Session = rec.ID
	src := session.Source{Job: rec.ID, Session: rec.Session}
	if _, err := log.Append(t.Context(), src, event.New(event.JobSubmitted{})); err != nil {
		t.Fatal(err)
	}
	if err := log.Finish(t.Context(), rec, rec.Result()); err != nil {
		t.Fatal(err)
	}
	for from := uint64(1); from <= 4; from++ {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		got := 0
		for _, err := range log.Follow(ctx, rec.Session, from, session.FollowOptions{Job: rec.ID}) {
			if err != nil {
				t.Fatal(err)
			}
			got++
		}
		if want := max(0, 3-int(from)); got != want || ctx.Err() != nil {
			t.Errorf("from %d: got %d events, want %d (%v)", from, got, want, ctx.Err())
		}
		cancel()
	}
}
