package dispatcher_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// What a dispatcher logs about the job of a schedule says which trace it is part of.
func TestALineAboutAJobHasItsTrace(t *testing.T) {
	nc := jobstest.Start(t).Connect()
	var said strings.Builder
	p := pool{queue: jobstest.Queue(t, nc, queue.Config{}), log: jobstest.Log(t, nc), store: jobstest.Store(t, nc), nc: nc}
	p.Dispatcher = dispatcher.New(dispatcher.Config{Queue: p.queue, Log: p.log, Store: p.store, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	rec := p.add(t, every("daily", 24*time.Hour))
	fired, err := dispatcher.Fire(t.Context(), p.Dispatcher, rec, *rec.Next)
	if err != nil {
		t.Fatal(err)
	}
	id := fired.LastJob
	made, err := p.queue.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if want := "job=" + id + " session=" + made.Session; !strings.Contains(said.String(), want) || !strings.Contains(said.String(), "trace_id="+jobs.RootTrace(id).TraceID()) {
		t.Errorf("the log says %s, want %s and its trace", &said, want)
	}
	said.Reset()
	rec = fired
	rec.Overlap = calendar.OverlapSkip
	if _, err := dispatcher.Fire(t.Context(), p.Dispatcher, rec, *rec.Next); err != nil {
		t.Fatal(err)
	}
	if line := said.String(); !strings.Contains(line, "skipped=overlap") || strings.Contains(line, "job=") {
		t.Errorf("the log says %s", line)
	}
}
