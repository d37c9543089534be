package dispatcher_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// The dispatcher that leads reports every job that is accepted, once, whether by
// itself, by another process, or by a foreign client that only knows the queue.
// Changes of a job, and jobs from before, are not new.
func TestEveryAcceptedJobIsReportedOnce(t *testing.T) {
	var mu sync.Mutex
	reported := map[string]int{}
	sources := map[string]bool{}
	var leads atomic.Bool
	p := open(t, dispatcher.Hooks{Leading: leads.Store, Submitted: func(rec jobs.Record) {
		mu.Lock()
		defer mu.Unlock()
		reported[rec.ID]++
		sources[rec.Source] = true
	}})
	before, err := p.Submit(t.Context(), job(), "cli")
	if err != nil {
		t.Fatal(err)
	}
	p.serve(t)
	eventually(t, "it leads", leads.Load)

	var want []string
	for _, source := range []string{"cli", "nats", "batch"} {
		answer, err := p.Submit(t.Context(), job(), source)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, answer.ID)
	}
	foreign := jobstest.Submit(t, jobstest.Queue(t, p.nc, queue.Config{}), jobstest.Job())
	want = append(want, foreign.ID)
	for _, id := range want { // ends, and comes back
		if _, err := p.queue.Cancel(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.queue.Retry(t.Context(), id, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	last, err := p.Submit(t.Context(), job(), "cli")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader has seen the last job", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return reported[last.ID] > 0
	})
	mu.Lock()
	defer mu.Unlock()
	for _, id := range append(want, last.ID) {
		if reported[id] != 1 {
			t.Errorf("job %s was reported %d times", id, reported[id])
		}
	}
	if reported[before.ID] > 0 || !sources["nats"] || !sources[""] {
		t.Errorf("reported a job from before: %d times; of sources %v", reported[before.ID], sources)
	}
}
