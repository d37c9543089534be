package dispatcher_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// The same key with another job is answered with the first one, and with what
// differs in it.
func TestADuplicateSaysWhatDiffers(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	first := job()
	first.Key = "k"
	kept, err := p.Submit(t.Context(), first, "test")
	if err != nil {
		t.Fatal(err)
	}
	other := first
	other.Prompt, other.Check, other.Env = "another", []string{"true"}, map[string]string{"A": "b"}
	for _, tt := range []struct {
		job  jobs.Job
		want []string
	}{{first, nil}, {other, []string{"check", "env", "prompt"}}} {
		got, err := p.Submit(t.Context(), tt.job, "test")
		if err != nil || got.ID != kept.ID || !got.Duplicate || !slices.Equal(got.Differs, tt.want) {
			t.Errorf("got %+v, %v, want job %s that differs in %v", got, err, kept.ID, tt.want)
		}
	}
}

// publishAs publishes a job without waiting for an answer, and chooses its id.
func (p pool) publishAs(t *testing.T, id string, j jobs.Job) {
	t.Helper()
	body, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	msg := nats.NewMsg("penstock.v1.submit.default")
	msg.Data = body
	msg.Header.Set(operation.JobIDHeader, id)
	if _, err := p.nc.RequestMsgWithContext(jobstest.Context(t), msg); err != nil {
		t.Fatal(err)
	}
}

// A plain publish may choose its job's id. The same publish again is the same
// job; one that cannot have the id is filed with the reason, and the job that
// has it hears nothing.
func TestAPlainPublishChoosesItsID(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)

	mine := job()
	mine.Key = "mine"
	id := jobs.NewID()
	p.publishAs(t, id, mine)
	p.publishAs(t, id, mine)
	other := mine
	other.Prompt, other.Key = "another", ""
	p.publishAs(t, id, other)
	p.publishAs(t, jobs.NewID(), mine) // whose key is taken
	for _, bad := range []string{"x", strings.ToUpper(id), "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "*"} {
		p.publishAs(t, bad, other)
	}
	var letters []jobs.DeadLetter
	eventually(t, "six publishes are refused", func() bool {
		var err error
		if letters, err = p.queue.DeadLetters().List(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(letters) >= 6
	})
	for i, want := range []string{"id: job " + id + " already exists and differs in prompt", `key: "mine" belongs to job ` + id,
		operation.JobIDHeader, operation.JobIDHeader, operation.JobIDHeader, operation.JobIDHeader} {
		if !strings.Contains(letters[i].Reason, want) {
			t.Errorf("letter %d: %s, want %s", i, letters[i].Reason, want)
		}
	}
	records, err := p.queue.List(t.Context(), record.Filter{})
	if err != nil || len(records) != 1 || records[0].ID != id {
		t.Errorf("got jobs %+v, %v, want %s alone", records, err, id)
	}
	for e, err := range p.log.Read(t.Context(), id, 1) {
		if err != nil || e.Kind != jobs.JobSubmitted {
			t.Errorf("the session of the job has %s, %v", e.Kind, err)
		}
	}
}

// The result of a job that has not finished is a refusal with a code of its own.
func TestTheResultOfAJobThatRuns(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	answer, err := p.Submit(t.Context(), job(), "test")
	if err != nil {
		t.Fatal(err)
	}
	var refusal operation.Refusal
	eventually(t, "a dispatcher answers", func() bool {
		msg, err := p.nc.RequestWithContext(t.Context(), "penstock.v1.api.result", []byte(`{"id":"`+answer.ID+`"}`))
		return err == nil && json.Unmarshal(msg.Data, &refusal) == nil
	})
	if refusal.Error.Code != "not_finished" {
		t.Errorf("refused with %+v, want not_finished", refusal)
	}
}
