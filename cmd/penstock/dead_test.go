package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// bus connects to the pool that runs on the field's data directory.
func (f *field) bus() *nats.Conn {
	f.Helper()
	at, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	nc, err := nats.Connect(at.URL, at.Options()...)
	f.must(err)
	f.Cleanup(nc.Close)
	return nc
}

func (f *field) letters(args ...string) []jobs.DeadLetter {
	f.Helper()
	var list []jobs.DeadLetter
	f.must(json.Unmarshal([]byte(f.run(append([]string{"dead", "ls", "-o", "json"}, args...)...)), &list))
	return list
}

// What was refused is kept with its reason, is refused again while it is wrong,
// and becomes one job when it is not, however often that is asked for.
func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.serve("--slots", "0")
	nc := f.bus()
	_, err := nc.Request("penstock.v1.submit.default", []byte(`{"prompt":"x","agent":{"brand":"claude"}}`), 10*time.Second)
	f.must(err)
	f.eventually(20*time.Second, "the submission is refused", func() bool { return len(f.letters("--kind", "submission")) == 1 })
	wrong := f.letters()[0]
	if !strings.Contains(wrong.Reason, "agent.brand") || wrong.Kind != jobs.DeadSubmission {
		t.Errorf("letter %+v, want the field named", wrong)
	}
	f.refused(1, []string{"1 of 1", "agent.brand"}, "dead", "retry", wrong.ID[:13])

	q, err := queue.Open(t.Context(), nc, queue.Config{})
	f.must(err)
	good := queue.Submission{
		ID: jobs.NewID(), Tenant: "default", At: time.Now(),
		Data: []byte(`{"prompt":"x","isolation":"none","agent":{"name":"command","command":["true"]}}`),
	}
	for range 2 { // the first retry died before the letter was dropped
		f.must(q.Reject(t.Context(), good, errors.New("there was no room")))
		out := f.run("dead", "retry", good.ID)
		if !strings.Contains(out, "submitted") {
			t.Errorf("dead retry: %s", out)
		}
	}
	if list := f.list(); len(list) != 1 || list[0].State != jobs.Pending {
		t.Errorf("jobs %+v, want one, pending", list)
	}
	f.run("dead", "drop", "--all", "--kind", "submission")
	if list := f.letters(); len(list) > 0 {
		t.Errorf("left: %+v", list)
	}
}
