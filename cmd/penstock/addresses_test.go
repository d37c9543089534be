package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
)

// A password in a repository's address is refused at every door, with the way
// out, and neither stored nor said. A job that an earlier version accepted with one
// does not show it, and does not begin.
func TestPasswordsInAddressesAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	const secret, address = "hunter2", "https://user:hunter2@127.0.0.1:9/x.git"
	item := `{"prompt":"x","repo":{"url":"` + address + `"},"agent":{"name":"command","command":["true"]}}`
	items := filepath.Join(t.TempDir(), "items.jsonl")
	f.must(os.WriteFile(items, []byte(item+"\n"), 0o644))
	refused := func(args ...string) {
		t.Helper()
		out, code, told := f.try(args...)
		if code == 0 || strings.Contains(out+told, secret) || !strings.Contains(out+told, "credential helper") {
			t.Errorf("penstock %v: exit code %d\n%s%s", args, code, out, told)
		}
	}
	refused("submit", "--repo", address, "--", "true")
	refused("batch", "run", items, "--out", filepath.Join(t.TempDir(), "out"))
	refused("schedule", "add", "nightly", "--every", "1h", "--repo", address, "--", "true")

	nc := f.bus()
	answer, err := nc.Request("penstock.v1.api.submit", []byte(item), 10*time.Second)
	f.must(err)
	if !bytes.Contains(answer.Data, []byte("credential helper")) || bytes.Contains(answer.Data, []byte(secret)) {
		t.Errorf("the request is answered with %s", answer.Data)
	}
	_, err = nc.Request("penstock.v1.submit.default", []byte(item), 10*time.Second)
	f.must(err)
	f.eventually(30*time.Second, "the submission is refused", func() bool { return len(f.letters("--kind", "submission")) == 1 })
	f.silent(secret, "dead", "ls", "-o", "json")
	f.silent(secret, "dead", "get", "-o", "json", f.letters()[0].ID)

	q, err := queue.Open(t.Context(), nc, queue.Config{})
	f.must(err)
	old := jobs.Job{Prompt: "x", Repo: jobs.Repo{URL: address}, Agent: jobs.Agent{Name: "command", Command: []string{"true"}}}
	id := jobstest.Submit(t, q, old.WithDefaults()).ID
	f.eventually(30*time.Second, "the old job ends", func() bool { return f.record(id).State == jobs.Finished })
	if rec := f.record(id); rec.Reason != jobs.InvalidJob || rec.Attempt != 1 {
		t.Errorf("the old job ended as %s (%s) after %d attempts", rec.Reason, rec.Message, rec.Attempt)
	}
	for _, args := range [][]string{
		{"job", "get", "-o", "json", id}, {"job", "ls", "-o", "jsonl"}, {"dead", "get", "-o", "json", id}, {"logs", "-o", "jsonl", id}, {"why", id},
	} {
		f.silent(secret, args...)
	}
	refused("job", "fork", id)
	if _, code, told := f.try("job", "retry", id); code == 0 || strings.Contains(told, secret) || !strings.Contains(told, "repo.url") {
		t.Errorf("the retry ends with %d: %s", code, told)
	}
}

// silent runs the program and wants a word nowhere in what it says.
func (f *fixture) silent(word string, args ...string) {
	f.Helper()
	out, code, told := f.try(args...)
	if code != 0 || out == "" || strings.Contains(out+told, word) {
		f.Errorf("penstock %v: exit code %d, with %q in\n%s%s", args, code, word, out, told)
	}
}
