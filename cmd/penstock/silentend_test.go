package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// followers are the commands that wait for the end of a job.
var followers = [][]string{{"wait"}, {"watch"}, {"logs", "-f"}}

// A finished job ends every wait, also when its events have left the log.
func TestWaitsEndWithoutTheEventsOfAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	id := f.submit("echo hi")
	f.run("wait", id)
	js, err := f.bus().JetStream()
	f.must(err)
	f.must(js.PurgeStream("PS_EVENTS", &nats.StreamPurgeRequest{Subject: "penstock.v1.sessions.*." + id + ".events"}))
	for _, command := range followers {
		began := time.Now()
		out, code, stderr := f.try(append(command, id)...)
		if code != 0 || time.Since(began) > jobstest.Patience {
			t.Errorf("%v: code %d after %v\n%s%s", command, code, time.Since(began), out, stderr)
		}
		if command[0] != "wait" && !strings.Contains(stderr, "has finished: success") {
			t.Errorf("%v does not say how the job ended: %s", command, stderr)
		}
	}
	if _, _, stderr := f.try("logs", id); !strings.Contains(stderr, "has finished: success") {
		t.Errorf("logs of a job without events says nothing: %s", stderr)
	}
}

// A job that a program finished which writes no events ends the waits that have
// begun before, too.
func TestWaitsEndWithAForeignFinish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve() // no slots: the worker is the foreign program
	id := f.submit("echo hi")
	var waits []*program
	for _, command := range followers {
		p := &program{Cmd: f.command(append(command, id)...), log: &syncBuffer{}}
		p.Stdout, p.Stderr = p.log, p.log
		f.must(p.Start())
		f.Cleanup(p.kill)
		waits = append(waits, p)
	}
	for _, p := range waits[1:] {
		f.eventually(30*time.Second, "the watchers have begun", func() bool { return strings.Contains(p.log.String(), "submitted") })
	}
	q, err := queue.Open(t.Context(), f.bus(), queue.Config{})
	f.must(err)
	claim, err := q.Claim(jobstest.Context(t), "foreign", []string{"default"})
	f.must(err)
	_, err = claim.Settle(t.Context(), jobs.Ended{Outcome: jobs.Success}, nil)
	f.must(err)
	for i, p := range waits {
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%v: %v\n%s", followers[i], err, p.log)
			}
		case <-time.After(jobstest.Patience):
			t.Errorf("%v waits for ever", followers[i])
			_ = p.Process.Kill()
			if <-ended == nil {
				t.Errorf("%v ended well although it was killed", followers[i])
			}
		}
	}
}
