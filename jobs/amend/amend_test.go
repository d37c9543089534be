package amend_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/amend"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A review is of one result: only a finished job has one, it is refused for another attempt's,
// and a job that goes on is not reviewed any more.
func TestAReviewIsOfOneResult(t *testing.T) {
	t.Parallel()
	ctx, nc := jobstest.Context(t), jobstest.Start(t).Connect()
	q := jobstest.Queue(t, nc, queue.Config{})
	rec := jobstest.Submit(t, q, jobstest.Job())
	if _, err := amend.Review(ctx, q, rec.ID, jobs.Review{State: jobs.Accepted}); !errors.Is(err, jobs.ErrNotFinished) || rec.Reviewed() != "" {
		t.Errorf("a job that waits: %v, %q", err, rec.Reviewed())
	}
	c := jobstest.Claim(t, q, "w")
	rec, err := c.Settle(ctx, jobs.Ended{Outcome: jobs.Failure, Reason: jobs.AgentFailed}, nil)
	if err != nil || rec.Reviewed() != jobs.Unreviewed {
		t.Fatal(rec.Reviewed(), err)
	}
	kept := func() (until time.Time) {
		for c, err := range q.Changed(ctx, 0) {
			if err != nil {
				t.Fatal(err)
			}
			until = c.Expires
		}
		return until
	}
	until := kept()
	var coded *jobs.CodedError
	if _, err := amend.Review(ctx, q, rec.ID, jobs.Review{State: jobs.Accepted, Epoch: rec.Epoch + 1}); !errors.As(err, &coded) || coded.Code != jobs.CodeExists {
		t.Errorf("another result: %v", err)
	}
	for _, state := range []jobs.ReviewState{jobs.Accepted, jobs.Rejected, jobs.Unreviewed, jobs.Delivered} {
		set, err := amend.Review(ctx, q, rec.ID[:18], jobs.Review{State: state, By: "t", Comment: "c", Epoch: rec.Epoch})
		if err != nil || set.Reviewed() != state {
			t.Fatalf("got %q, %v, want %s", set.Reviewed(), err, state)
		}
		got, err := q.Get(ctx, rec.ID)
		if err != nil || got.Reviewed() != state || state != jobs.Unreviewed && (got.Review.By != "t" || got.Review.Comment != "c") {
			t.Errorf("got %+v, %v, want %s", got.Review, err, state)
		}
		got.Review = nil
		if want := rec; got.State != want.State || got.Epoch != want.Epoch || got.Outcome != want.Outcome || !got.Finished.Equal(*want.Finished) {
			t.Errorf("the record is %+v, was %+v", got, want)
		}
	}
	if after := kept(); until.IsZero() || after.Sub(until).Abs() > 10*time.Second {
		t.Errorf("it is kept until %v, and was until %v", after, until)
	}
	again, err := q.Retry(ctx, rec.ID, false, nil)
	if err != nil || again.Review != nil || again.Reviewed() != "" {
		t.Errorf("retried: %+v, %v", again.Review, err)
	}
}
