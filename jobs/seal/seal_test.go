package seal_test

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/seal"
)

func signedJob(t *testing.T) (jobs.Job, jobs.Record, ed25519.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(time.Hour)
	job := jobs.Job{
		Prompt: "fix <it> & \u2028 go", Repo: jobs.Repo{URL: "/src"}, Agent: jobs.Agent{Name: "command", Command: []string{"true"}},
		Env: map[string]string{"B": "2", "A": "1"}, Setup: []string{}, RunAt: &at, Key: "k", Budget: jobs.Budget{USD: 0.1},
		Files: []jobs.File{{Name: "f", Content: []byte{0, 255}}}, Sandbox: jobs.Sandbox{Limits: jobs.Limits{Memory: 1500 << 20}},
	}.WithDefaults()
	id := jobs.NewID()
	job, err = seal.Sign(job, id, private)
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Validate(); err != nil {
		t.Fatal(err)
	}
	// The way of a specification: stored, and read again.
	stored, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if job, err = jobs.Decode(stored); err != nil {
		t.Fatal(err)
	}
	return job, jobs.NewRecord(id, "default", job, time.Now()), public
}

func TestSignature(t *testing.T) {
	job, rec, key := signedJob(t)
	if err := seal.Verify(job, rec, []ed25519.PublicKey{make([]byte, 32), key}); err != nil {
		t.Errorf("what was signed: %v", err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*jobs.Job, *jobs.Record)
		keys   []ed25519.PublicKey
		want   string
	}{
		"unsigned":     {func(j *jobs.Job, _ *jobs.Record) { j.Signature = nil }, nil, "is not signed"},
		"no key":       {nil, []ed25519.PublicKey{}, "not trusted"},
		"another key":  {nil, []ed25519.PublicKey{other}, "not trusted"},
		"an empty key": {func(j *jobs.Job, _ *jobs.Record) { j.Signature.Key = nil }, []ed25519.PublicKey{nil}, "not trusted"},
		"another id":   {func(_ *jobs.Job, r *jobs.Record) { r.ID = jobs.NewID() }, nil, "was signed as"},
		"both ids":     {func(j *jobs.Job, r *jobs.Record) { r.ID = jobs.NewID(); j.Signature.ID = r.ID }, nil, "altered"},
		"key replaced": {func(j *jobs.Job, _ *jobs.Record) { j.Signature.Key = other }, []ed25519.PublicKey{key, other}, "altered"},
		"prompt":       {func(j *jobs.Job, _ *jobs.Record) { j.Prompt += " " }, nil, "altered"},
		"command":      {func(j *jobs.Job, _ *jobs.Record) { j.Agent.Command[0] = "sh" }, nil, "altered"},
		"secrets":      {func(j *jobs.Job, _ *jobs.Record) { j.Secrets = []string{"NPM_TOKEN"} }, nil, "altered"},
		"its key":      {func(j *jobs.Job, r *jobs.Record) { j.Key, r.Key = "other", "other" }, nil, "altered"},
		"record's key": {func(_ *jobs.Job, r *jobs.Record) { r.Key = "other" }, nil, "another session"},
		"session":      {func(_ *jobs.Job, r *jobs.Record) { r.Session = jobs.NewID() }, nil, "another session"},
		"queue":        {func(_ *jobs.Job, r *jobs.Record) { r.Class = "gpu" }, nil, "another session"},
		"value":        {func(j *jobs.Job, _ *jobs.Record) { j.Signature.Value[0] ^= 1 }, nil, "altered"},
		"no value":     {func(j *jobs.Job, _ *jobs.Record) { j.Signature.Value = nil }, nil, "altered"},
	} {
		job, rec, key := signedCopy(t, job), rec, key
		if c.change != nil {
			c.change(&job, &rec)
		}
		keys := c.keys
		if keys == nil {
			keys = []ed25519.PublicKey{key}
		}
		err := seal.Verify(job, rec, keys)
		if unsigned, ok := errors.AsType[*seal.UnsignedError](err); !ok || !strings.Contains(unsigned.Why, c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// signedCopy shares nothing with job.
func signedCopy(t *testing.T, job jobs.Job) jobs.Job {
	t.Helper()
	data, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := jobs.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	return copied
}

func TestSignatureIsValidated(t *testing.T) {
	job, _, _ := signedJob(t)
	job.Signature = &jobs.Signature{ID: "../x", Key: []byte("k"), Value: nil}
	invalid, ok := errors.AsType[*jobs.InvalidError](job.Validate())
	if !ok || len(invalid.Fields) != 3 || invalid.Fields[0].Field != "signature.id" {
		t.Errorf("%v, want three fields of the signature", invalid)
	}
}
