package main

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
)

// Doctor and restore find a record that does not know of the end of its job.
func TestDoctorAndRestoreCompareTheRecords(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	srv := jobstest.Start(t)
	nc := srv.Connect()
	q, log := jobstest.Queue(t, nc, queue.Config{}), jobstest.Log(t, nc)
	if _, err := artifact.Open(t.Context(), nc, artifact.Config{}); err != nil {
		t.Fatal(err)
	}
	f.run("nats", "apply", "--server", srv.URL()) // what is missing besides
	job := jobstest.Submit(t, q, jobstest.Job())
	doctor := func() string {
		out, _, _ := f.try("doctor", "--server", srv.URL(), "-o", "jsonl") // the host may lack something
		for line := range strings.Lines(out) {
			if strings.Contains(line, `"check":"records"`) {
				return line
			}
		}
		return ""
	}
	if line := doctor(); !strings.Contains(line, `"status":"ok"`) {
		t.Errorf("before anything is lost: %s", line)
	}
	src := session.Source{Job: job.ID, Session: job.Session, Attempt: 1, Epoch: 7}
	if _, err := log.Append(t.Context(), src, event.New(event.JobFinished{Job: job.ID, Outcome: jobs.Success, Attempts: 1})); err != nil {
		t.Fatal(err)
	}
	if line := doctor(); !strings.Contains(line, `"status":"weak"`) || !strings.Contains(line, job.ID) {
		t.Errorf("doctor says %s, want that job %s has finished", line, job.ID)
	}
	file := t.TempDir() + "/pool.backup"
	f.run("backup", file, "--server", srv.URL())
	out, code, told := f.try("restore", file, "--server", srv.URL(), "--replace")
	if code != 0 || !strings.Contains(told, "repaired: job "+job.ID) {
		t.Errorf("restore: %d, %s%s", code, out, told)
	}
	if rec, err := q.Get(t.Context(), job.ID); err != nil || rec.State != jobs.Finished || rec.Outcome != jobs.Success {
		t.Errorf("after restore: %+v, %v", rec, err)
	}
}
