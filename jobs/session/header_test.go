package session_test

import (
	"slices"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// What a worker tells of a job is a CloudEvent, too, also amid many lines of its agent
// that are stored as a batch.
func TestAWriterGivesEventsOfJobsTheirHeaders(t *testing.T) {
	t.Parallel()
	nc := jobstest.Start(t).Connect()
	l := jobstest.Log(t, nc)
	seen, err := nc.SubscribeSync("penstock.v1.sessions.>")
	if err != nil {
		t.Fatal(err)
	}
	w := writer(t, l, source("j1", 1))
	waiting := event.New(event.JobWaiting{Reason: "question"})
	all := slices.Concat(lines(40), []jobs.Event{waiting}, lines(40), []jobs.Event{event.New(event.JobRequeued{Reason: "worker_lost"})})
	if err := w.Append(jobstest.Context(t), all...); err != nil {
		t.Fatal(err)
	}
	events := read(t, l, "j1", 1)
	if len(events) != 1+len(all) {
		t.Fatalf("%d events are stored, want %d", len(events), 1+len(all))
	}
	for _, e := range events {
		msg, err := seen.NextMsgWithContext(jobstest.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		got, err := cloudevent.Decode(msg.Header, msg.Data)
		ofJob := e.Kind != jobs.OutputLine
		if err != nil || (len(got) == 1) != ofJob {
			t.Errorf("%s is the CloudEvents %+v, %v", e.Kind, got, err)
		}
		if ofJob && len(got) == 1 && (got[0].Type != "dev.penstock."+string(e.Kind)+".v1" || !got[0].Time.Equal(e.Time)) {
			t.Errorf("%s of %v is %+v", e.Kind, e.Time, got[0])
		}
	}
}
