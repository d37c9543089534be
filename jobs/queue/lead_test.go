package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// While there is a leader, a job waits until it is admitted, whichever client
// submits it; without a leader, it is in its queue at once.
func TestWhoLeadsAdmits(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q, other := open(t, s, queue.Config{}), open(t, s, queue.Config{})
	ctx, stop := context.WithCancel(jobstest.Context(t))
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- q.Lead(ctx, func(ctx context.Context) {
			close(began)
			<-ctx.Done()
		})
	}()
	select {
	case <-began:
	case <-ctx.Done():
		t.Fatal("nobody leads")
	}
	rec := jobstest.Submit(t, other, jobstest.Job())
	idle(t, other, 200*time.Millisecond)
	if err := q.Admit(jobstest.Context(t), rec); err != nil {
		t.Fatal(err)
	}
	if ids, err := q.Admitted(jobstest.Context(t), rec.Class, rec.Lane); err != nil || len(ids) != 1 || ids[0] != rec.ID {
		t.Errorf("admitted %v, %v; want %s", ids, err, rec.ID)
	}
	settle(t, jobstest.Claim(t, other, "w"), success)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	rec = jobstest.Submit(t, other, jobstest.Job())
	if got := jobstest.Claim(t, other, "w").Record(); got.ID != rec.ID || got.State != jobs.Executing {
		t.Errorf("claimed %+v, want %s", got, rec.ID)
	}
}
