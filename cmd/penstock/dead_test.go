package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/seal"
)

// bus connects to the pool that runs on the fixture's data directory.
func (f *fixture) bus() *nats.Conn {
	f.Helper()
	at, err := natsd.Find(filepath.Join(f.data, "nats"))
	f.must(err)
	nc, err := nats.Connect(at.URL, at.Options()...)
	f.must(err)
	f.Cleanup(nc.Close)
	return nc
}

func (f *fixture) letters(args ...string) []jobs.DeadLetter {
	f.Helper()
	var list []jobs.DeadLetter
	f.must(json.Unmarshal([]byte(f.run(append([]string{"dead", "ls", "-o", "json"}, args...)...)), &list))
	return list
}

// What was refused is kept with its reason, is refused again while it is wrong,
// and becomes one job when it is not, however often that is asked for.
func TestRefusedSubmissions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
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

// A refused submission that is submitted again runs on a worker that wants signatures:
// with the signature that it had, or with that of the program that submits it again.
func TestRefusedSubmissionsAreSigned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := t.TempDir()
	own, other := f.keyPair(dir, "own"), f.keyPair(dir, "other")
	f.serve("--slots", "2", "--require-signature", filepath.Join(dir, "own.pub"))
	q, err := queue.Open(t.Context(), f.bus(), queue.Config{})
	f.must(err)
	for what, keys := range map[string]struct{ before, after string }{
		"unsigned, and then signed": {"", own},
		"signed before":             {own, ""},
		"signed by two":             {other, own},
	} {
		data := []byte(`{"isolation":"none","agent":{"name":"command","command":["true"]}}`)
		if keys.before != "" {
			key, err := signing.Key(&cli.Config{SignKey: keys.before})
			f.must(err)
			job, err := jobs.Decode(data)
			f.must(err)
			job, err = seal.Sign(job.WithDefaults(), jobs.NewID(), key)
			f.must(err)
			data, err = json.Marshal(job)
			f.must(err)
		}
		refused := queue.Submission{ID: jobs.NewID(), Tenant: "default", At: time.Now(), Data: data}
		args := []string{"dead", "retry", refused.ID, "-o", "json"}
		if keys.after != "" {
			args = append(args, "--sign-key", keys.after)
		}
		var made []string
		for range 2 { // the first retry died before the letter was dropped
			f.must(q.Reject(t.Context(), refused, errors.New("there was no room")))
			var done []operation.DeadDone
			f.must(json.Unmarshal([]byte(f.run(args...)), &done))
			made = append(made, done[0].Job)
		}
		if made[0] != made[1] {
			t.Errorf("%s: the jobs %v were made, want one", what, made)
		}
		if _, code, said := f.try("wait", "--timeout", patience(60), made[0]); code != 0 {
			t.Errorf("%s: the job ended with %d: %s", what, code, said)
		}
	}
	if list := f.letters(); len(list) > 0 {
		t.Errorf("left: %+v", list)
	}
}
