package overlaps_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/dispatcher/overlaps"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, jobstest.ServersOwn()...) }

// A radar is the watch of a pool whose records a test makes.
type radar struct {
	*testing.T
	store overlap.Store
	log   *session.Log
	cfg   overlaps.Config
}

func newRadar(t *testing.T, record func(id string) (jobs.Record, error)) radar {
	nc := jobstest.Start(t).Connect()
	r := radar{T: t, store: overlap.Of(jobstest.Queue(t, nc, queue.Config{}).Workers()), log: jobstest.Log(t, nc)}
	r.cfg = overlaps.Config{
		Store: r.store, Append: r.log.Append, Logger: slog.New(slog.DiscardHandler),
		Record: func(_ context.Context, id string) (jobs.Record, error) { return record(id) },
	}
	return r
}

// leads runs a leader until stop.
func (r radar) leads() (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan struct{})
	go func() { defer close(done); overlaps.New(r.cfg).Run(ctx) }()
	return func() { cancel(); <-done }
}

func (r radar) put(job string, paths ...string) {
	r.Helper()
	var stat patchstat.Stat
	for _, path := range paths {
		stat.Files = append(stat.Files, patchstat.File{Path: path, Spans: []patchstat.Span{{Begin: 1, End: 2}}})
	}
	rec := jobs.Record{ID: job, Repo: "r"}
	if err := r.store.Put(r.Context(), overlap.New(rec, "c", stat, strings.TrimSpace)); err != nil {
		r.Fatal(err)
	}
}

// told returns what the session of a job says.
func (r radar) told(job string) (all []string) {
	r.Helper()
	for e, err := range r.log.Read(r.Context(), job, 1) {
		if err != nil {
			r.Fatal(err)
		}
		found := event.As[event.OverlapFound](e)
		all = append(all, found.Job+": "+strings.Join(found.Files, " "))
	}
	slices.Sort(all)
	return all
}

func (r radar) until(what string, ok func() bool) {
	r.Helper()
	if !slowtest.Eventually(30*time.Second, 50*time.Millisecond, ok) {
		r.Fatalf("not: %s", what)
	}
}

func runs(id string) (jobs.Record, error) {
	return jobs.Record{ID: id, Session: id, Repo: "r", State: jobs.Executing}, nil
}

// All overlaps that were planted among many jobs are found, and no other ones. Leaders that follow tell them
// to nobody again.
func TestPlantedOverlapsAreFound(t *testing.T) {
	t.Parallel()
	const n = 300
	r := newRadar(t, runs)
	stop := r.leads()
	want := map[string][]string{}
	for i := range n {
		job := fmt.Sprint("job-", i)
		paths := []string{fmt.Sprint("own-", i)}
		if i%10 < 2 { // pairs
			shared := fmt.Sprint("shared-", i/10)
			other := fmt.Sprint("job-", i/10*10+1-i%10)
			paths, want[job] = append(paths, shared), []string{other + ": " + shared}
		}
		r.put(job, paths...)
	}
	check := func() {
		t.Helper()
		for i := range n {
			job := fmt.Sprint("job-", i)
			if got := r.told(job); !slices.Equal(got, want[job]) {
				t.Errorf("%s is told %q, want %q", job, got, want[job])
			}
		}
	}
	r.until("the last pair is found", func() bool { return len(r.told("job-290")) > 0 && len(r.told("job-291")) > 0 })
	check()
	stop()
	stop = r.leads()
	defer stop()
	r.put("job-0", "own-0", "shared-0", "own-1")
	want["job-0"] = append(want["job-0"], "job-1: own-1 shared-0")
	want["job-1"] = append(want["job-1"], "job-0: own-1 shared-0")
	slices.Sort(want["job-0"])
	slices.Sort(want["job-1"])
	r.until("what is new is told", func() bool { return len(r.told("job-1")) > 1 })
	check()
	if found, err := r.store.Found(t.Context(), "job-0"); err != nil || len(found) != 1 || len(found[0].Files) != 2 {
		t.Errorf("noted: %+v, %v", found, err)
	}
}

// What a job did counts while it runs, and when it has succeeded. One that failed, or that is gone, is
// compared with nothing; one that has ended is told nothing, but noted.
func TestWhichJobsCount(t *testing.T) {
	t.Parallel()
	r := newRadar(t, func(id string) (jobs.Record, error) {
		rec, err := runs(id)
		switch id {
		case "failed":
			rec.State, rec.Outcome = jobs.Finished, jobs.Failure
		case "done":
			rec.State, rec.Outcome = jobs.Finished, jobs.Success
		case "gone":
			err = jobs.ErrPurged
		}
		return rec, err
	})
	for _, job := range []string{"failed", "done", "gone", "running"} {
		r.put(job, "f")
	}
	defer r.leads()()
	r.until("the one that runs is told", func() bool { return len(r.told("running")) > 0 })
	r.put("last", "f")
	r.until("so is the last one", func() bool { return len(r.told("last")) == 2 })
	for job, want := range map[string][]string{"running": {"done: f", "last: f"}, "last": {"done: f", "running: f"}, "done": nil, "failed": nil, "gone": nil} {
		if got := r.told(job); !slices.Equal(got, want) {
			t.Errorf("%s is told %q, want %q", job, got, want)
		}
	}
	if found, err := r.store.Found(t.Context(), "done"); err != nil || len(found) != 2 {
		t.Errorf("of the one that is done: %+v, %v", found, err)
	}
}

// A file that every job changes does not flood them, and a session that cannot be told keeps no other
// from being told.
func TestManyJobsOfOneFile(t *testing.T) {
	t.Parallel()
	r := newRadar(t, runs)
	tell, failed := r.cfg.Append, atomic.Int64{}
	r.cfg.Append = func(ctx context.Context, src session.Source, e jobs.Event) (jobs.Event, error) {
		if src.Job == "job-0" && failed.Add(1) < 5 {
			return e, errors.New("not now")
		}
		return tell(ctx, src, e)
	}
	defer r.leads()()
	for i := range 60 {
		r.put(fmt.Sprint("job-", i), "CHANGELOG")
	}
	r.until("each is told of as many as there may be", func() bool {
		return len(r.told("job-0")) == 20 && len(r.told("job-59")) == 20
	})
	for i := range 60 {
		if n := len(r.told(fmt.Sprint("job-", i))); n != 20 {
			t.Errorf("job-%d is told of %d", i, n)
		}
	}
}
