package recovery_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A job whose record is gone, or is of before its end, is found by what its session says, and
// finished again with the result that it had; a job that is as its session says is not named.
func TestRecordsAreComparedWithSessions(t *testing.T) {
	t.Parallel()
	ctx := jobstest.Context(t)
	nc := jobstest.Start(t).Connect()
	q := jobstest.Queue(t, nc, queue.Config{})
	conn, err := wire.New(nc, "")
	if err != nil {
		t.Fatal(err)
	}
	gone, whole := jobstest.Submit(t, q, jobstest.Job()), jobstest.Submit(t, q, jobstest.Job())
	running := jobstest.Submit(t, q, jobstest.Job())
	for range 3 {
		jobstest.Claim(t, q, "w")
	}
	if err := conn.Purge(ctx, subject.KVStream(subject.Jobs), subject.Key(subject.Jobs, gone.Class+"."+gone.ID)); err != nil {
		t.Fatal(err)
	}
	last := func(context.Context, []jobs.Record) (map[string]jobs.Event, error) {
		ended := jobs.Event{Kind: jobs.JobFinished, Attempt: 1, Time: time.Now().Add(time.Second), Data: []byte(`{"outcome":"success","attempts":1}`)}
		return map[string]jobs.Event{gone.ID: ended, running.ID: ended, whole.ID: {Kind: jobs.JobClaimed, Attempt: 1, Time: time.Now()}}, nil
	}
	result := func(context.Context, string) (jobs.Result, uint64, error) { return jobs.Result{}, 0, jobs.ErrNotFound }
	for _, fix := range []bool{false, true} {
		lost, err := q.Recovery().Audit(ctx, fix, last, result)
		if err != nil || len(lost) != 2 {
			t.Fatalf("fix %t: %v, %v", fix, lost, err)
		}
		for _, l := range lost {
			if was := map[string]jobs.State{gone.ID: "", running.ID: jobs.Executing}[l.Job]; l.Job == whole.ID || l.Was != was || l.Is != jobs.Finished || l.Fixed != fix {
				t.Errorf("fix %t: %+v", fix, l)
			}
		}
	}
	for _, id := range []string{gone.ID, running.ID} {
		if rec, err := q.Get(ctx, id); err != nil || rec.State != jobs.Finished || rec.Outcome != jobs.Success || rec.Attempt != 1 {
			t.Errorf("job %s: %+v, %v", id, rec, err)
		}
	}
	if lost, err := q.Recovery().Audit(ctx, true, last, result); err != nil || len(lost) > 0 {
		t.Errorf("afterwards: %v, %v", lost, err)
	}
}
