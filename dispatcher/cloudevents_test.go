package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/cloudevent"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/record"
)

// publishEvent publishes a message with headers to the subject of jobs.
func (p pool) publishEvent(t *testing.T, header map[string]string, body string) {
	t.Helper()
	msg := nats.NewMsg("penstock.v1.submit.default")
	msg.Data = []byte(body)
	for name, value := range header {
		msg.Header[name] = []string{value}
	}
	if _, err := p.nc.RequestMsgWithContext(jobstest.Context(t), msg); err != nil {
		t.Fatal(err)
	}
}

// A service publishes jobs as CloudEvents, in either mode and in any case. The same
// event again is the same job, and what cannot be read is filed with the reason.
func TestJobsAsCloudEvents(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	plain, err := json.Marshal(job())
	if err != nil {
		t.Fatal(err)
	}
	binary := map[string]string{"CE-SpecVersion": "1.0", "ce-id": "1", "Ce-Source": "/ci%20server", "ce-type": "com.example.fix", "Content-Type": "application/json"}
	structured := func(id, more string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/ci","type":"com.example.fix",%s}`, id, more)
	}
	media := map[string]string{"content-type": "application/cloudevents+json"}
	for range 2 {
		p.publishEvent(t, binary, string(plain))
		p.publishEvent(t, media, structured("2", `"data":`+string(plain)))
	}
	p.publishEvent(t, media, structured("", `"data":`+string(plain)))
	p.publishEvent(t, media, structured("3", `"data":{"prompt":1}`))
	p.publishEvent(t, map[string]string{"Content-Type": "application/cloudevents-batch+json"}, "["+structured("4", `"data":{}`)+","+structured("5", `"data":{}`)+"]")
	var letters []jobs.DeadLetter
	eventually(t, "three are refused", func() bool {
		var err error
		if letters, err = p.queue.DeadLetters().List(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(letters) >= 3
	})
	for i, want := range []string{"id: is missing", "prompt", "batch"} {
		if !strings.Contains(letters[i].Reason, want) {
			t.Errorf("letter %d: %s, want %s", i, letters[i].Reason, want)
		}
	}
	if want := `{"key":"/ci 3","prompt":1}`; letters[1].Data != want {
		t.Errorf("the refused job is kept as %s, want %s", letters[1].Data, want)
	}
	records, err := p.queue.List(t.Context(), record.Filter{})
	var keys []string
	for _, rec := range records { // of one millisecond they come in any order
		keys = append(keys, rec.Key)
	}
	slices.Sort(keys)
	if want := []string{"/ci 2", "/ci server 1"}; err != nil || !slices.Equal(keys, want) {
		t.Errorf("got the jobs of %q, %v, want %q", keys, err, want)
	}
}

// Events of jobs are CloudEvents, for those who follow a pool with what their event
// system gives them.
func TestEventsOfJobsAreCloudEvents(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	seen, err := p.nc.SubscribeSync("penstock.v1.sessions.>")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := p.Submit(t.Context(), job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := seen.NextMsgWithContext(jobstest.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	events, err := cloudevent.Decode(msg.Header, msg.Data)
	if err != nil || len(events) != 1 {
		t.Fatalf("got %+v, %v from headers %v", events, err, msg.Header)
	}
	var kept jobs.Event
	got := events[0]
	if err := json.Unmarshal(got.Data, &kept); err != nil || kept.Kind != jobs.JobSubmitted || kept.Job != answer.ID {
		t.Errorf("its data is %s, %v", got.Data, err)
	}
	if got.Type != "dev.penstock.job.submitted.v1" || got.Subject != answer.ID || got.ID != kept.Session+"/1" || got.Source != "/penstock/default" || !got.Time.Equal(kept.Time) {
		t.Errorf("the event is %+v", got)
	}
}
