package queue_test

import (
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
)

func after(on ...jobs.Record) jobs.Job {
	job := jobstest.Job()
	for _, rec := range on {
		job.DependsOn = append(job.DependsOn, rec.ID)
	}
	return job
}

func depend(tb testing.TB, q *queue.Queue, rec jobs.Record) []string {
	tb.Helper()
	open, err := q.Depend(jobstest.Context(tb), rec.ID)
	if err != nil {
		tb.Fatal(err)
	}
	return open
}

func TestADependentWaitsForAll(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	a, b := jobstest.Submit(t, q, jobstest.Job()), jobstest.Submit(t, q, jobstest.Job())
	rec := jobstest.Submit(t, q, after(a, b))
	if !rec.Dependent() {
		t.Fatalf("record %+v, want one that waits for others", rec)
	}
	if got := depend(t, q, rec); len(got) != 2 {
		t.Errorf("waits for %v, want both", got)
	}
	wants(t, q, rec, why.KeptDepends)
	settle(t, jobstest.Claim(t, q, "w"), success)
	if got := depend(t, q, rec); len(got) != 1 || got[0] != b.ID {
		t.Errorf("waits for %v, want %s", got, b.ID)
	}
	if got := wants(t, q, rec, why.KeptDepends); !strings.Contains(got.Message, b.ID) {
		t.Errorf("%+v, want %s named", got, b.ID)
	}
	settle(t, jobstest.Claim(t, q, "w"), success)
	wants(t, q, rec, why.KeptDue) // no dispatcher has looked yet
	if got := depend(t, q, rec); len(got) != 0 {
		t.Errorf("waits for %v, want nothing", got)
	}
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != rec.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, rec.ID)
	}
	if got := depend(t, q, rec); len(got) != 0 || get(t, q, rec.ID).State != jobs.Executing {
		t.Error("looking again has changed a job that runs")
	}
}

// What the end of one means for those behind it, also through others.
func TestADependentIsSkipped(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *queue.Queue, jobs.Record){
		"failure": func(t *testing.T, q *queue.Queue, _ jobs.Record) {
			settle(t, jobstest.Claim(t, q, "w"), jobs.AgentFailed.Ended("it gave up"))
		},
		"cancelled": func(t *testing.T, q *queue.Queue, rec jobs.Record) {
			if _, err := q.Cancel(jobstest.Context(t), rec.ID, "test"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := jobstest.Start(t)
			cfg, finished := finishedOnce()
			q := open(t, s, cfg)
			a := jobstest.Submit(t, q, jobstest.Job())
			b := jobstest.Submit(t, q, after(a))
			c := jobstest.Submit(t, q, after(b))
			end(t, q, a)
			depend(t, q, b)
			depend(t, q, c)
			for rec, on := range map[*jobs.Record]string{&b: a.ID, &c: b.ID} {
				got := get(t, q, rec.ID)
				if got.State != jobs.Finished || got.Outcome != jobs.Skip || got.Reason != jobs.DependencyFailed || !strings.Contains(got.Message, on) || got.Attempt != 0 {
					t.Errorf("%+v, want it skipped because of %s", got, on)
				}
				wants(t, q, got, why.KeptFinished)
			}
			if finished.Load() != 3 {
				t.Errorf("told of %d ends, want 3", finished.Load())
			}
			idle(t, q, 100*time.Millisecond)
		})
	}
}

// A dependent that is cancelled ends at once; one that is retried looks at its
// dependencies as they are now.
func TestADependentIsCancelledAndRetried(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	ctx := jobstest.Context(t)
	a := jobstest.Submit(t, q, jobstest.Job())
	rec := jobstest.Submit(t, q, after(a))
	if got, err := q.Cancel(ctx, rec.ID, "test"); err != nil || got.Outcome != jobs.Cancellation {
		t.Fatalf("cancel: %+v, %v", got, err)
	}
	if got, err := q.Retry(ctx, rec.ID, false, nil); err != nil || !got.Dependent() {
		t.Fatalf("retry: %+v, %v; want it to wait again", got, err)
	}
	settle(t, jobstest.Claim(t, q, "w"), jobs.AgentFailed.Ended("no"))
	depend(t, q, rec)
	if got := get(t, q, rec.ID); got.Outcome != jobs.Skip {
		t.Fatalf("%+v, want it skipped", got)
	}
	if _, err := q.Retry(ctx, a.ID, false, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Retry(ctx, rec.ID, false, nil); err != nil {
		t.Fatal(err)
	}
	settle(t, jobstest.Claim(t, q, "w"), success)
	depend(t, q, rec)
	if c := jobstest.Claim(t, q, "w"); c.Record().ID != rec.ID {
		t.Errorf("claimed %s, want %s", c.Record().ID, rec.ID)
	}
}

// A time and other jobs may both be waited for.
func TestADependentHasItsTime(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	q := open(t, s, queue.Config{})
	a := jobstest.Submit(t, q, jobstest.Job())
	job := after(a)
	at := time.Now().Add(time.Hour)
	job.RunAt = &at
	rec := jobstest.Submit(t, q, job)
	wants(t, q, rec, why.KeptDepends)
	settle(t, jobstest.Claim(t, q, "w"), success)
	depend(t, q, rec)
	if got := wants(t, q, rec, why.KeptRunAt); got.Until == nil || got.Until.Sub(at).Abs() > time.Second {
		t.Errorf("%+v, want %s", got, at)
	}
}
