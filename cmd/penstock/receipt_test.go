package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// The receipt of a job is checked with nothing but files, and one changed byte of what it is
// about is found.
func TestReceipts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	dir := f.TempDir()
	creds := filepath.Join(dir, "build-3.creds")
	f.run("nats", "credentials", "worker", "--name", "build-3", "--file", creds)
	f.run("nats", "credentials", "worker", "--name", "build-4", "--file", filepath.Join(dir, "build-4.creds"))
	f.run("nats", "credentials", "submitter", "--name", "ci", "--file", filepath.Join(dir, "ci.creds"))
	f.serve()
	f.worker("--slots", "1", "--creds", creds, "--name", "host-1")
	// The agent leaves a receipt of its own, too.
	id := f.submit("echo new >new.txt; echo forged >receipt.json; echo said", "--deliver", "branch", "--artifact", "receipt.json")
	f.run("wait", "--timeout", patience(60), id)
	fetched := filepath.Join(dir, "fetched")
	f.run("job", "artifacts", id, "--out", fetched)
	signed, patch, events := filepath.Join(fetched, "receipt.json"), filepath.Join(fetched, "changes.patch"), filepath.Join(dir, "events")
	write := func(name, content string) string {
		f.Helper()
		file := filepath.Join(dir, name)
		f.must(os.WriteFile(file, []byte(content), 0o600))
		return file
	}
	list := f.run("receipt", "workers")
	lines := strings.SplitAfter(list, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "build-3 ") || !strings.HasPrefix(lines[1], "build-4 ") || !strings.HasPrefix(lines[2], "owner ") {
		t.Fatalf("the workers are %q", lines)
	}
	workers, key := write("workers", list), write("key.pem", f.run("receipt", "key", "--creds", creds))
	write("events", f.run("logs", id, "-o", "jsonl"))
	commit := strings.TrimSpace(f.git("-C", f.repo, "for-each-ref", "--format=%(objectname)", "refs/heads/penstock"))

	told := f.run("receipt", "verify", signed, "--patch", patch, "--commit", commit, "--events", events, "--workers", workers, "-o", "json")
	for _, want := range []string{`"trusted": true`, `"signer": "build-3"`, `"worker": "host-1"`, `"job": "` + id + `"`, strings.TrimSpace(f.git("-C", f.repo, "rev-parse", "HEAD"))} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is missing in\n%s", want, told)
		}
	}
	f.run("receipt", "verify", signed, "--key", key)
	if _, code, said := f.try("receipt", "verify", signed); code != 0 || !strings.Contains(said, "nothing says whose key that is") {
		t.Errorf("without a key: %d %s", code, said)
	}

	_, another, _ := strings.Cut(lines[1], " ")
	for _, c := range []struct {
		says string
		args []string
	}{
		{"key: the statement is signed by", []string{signed, "--key", write("wrong", f.run("receipt", "key", "--data", filepath.Join(dir, "other")))}},
		{"key: the statement is signed by", []string{signed, "--workers", write("others", lines[1]+lines[2])}},
		{"worker: the statement says that it is of host-1, and it is signed by build-3", []string{signed, "--workers", write("crossed", lines[0]+"host-1 "+another)}},
		{"patch: it is", []string{signed, "--patch", changed(f, patch)}},
		{"commit: it is", []string{signed, "--commit", strings.Repeat("0", 40)}},
		{"events:", []string{signed, "--events", changed(f, events)}},
		{"is not valid: ", []string{changed(f, signed)}},
	} {
		if out, code, said := f.try(append([]string{"receipt", "verify"}, c.args...)...); code != cli.ExitUnexpected || out != "" || !strings.Contains(said, c.says) {
			t.Errorf("%v: ends with %d, %q and %q, want %q", c.args, code, out, said, c.says)
		}
	}
	if _, code, _ := f.try("receipt", "verify", filepath.Join(dir, "missing")); code != cli.ExitNotFound {
		t.Errorf("a file that is missing: %d", code)
	}
	for _, text := range []string{"", "build-3 key"} {
		if _, code, said := f.try("receipt", "verify", signed, "--workers", write("none", text)); code != cli.ExitUsage || !strings.Contains(said, "penstock receipt workers") {
			t.Errorf("a list with %q: %d %s", text, code, said)
		}
	}
	if info, err := os.Stat(filepath.Join(f.data, "receipt.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", info, err)
	}
}

// changed is a copy of a file with one bit in its middle that is another one.
func changed(f *fixture, file string) string {
	f.Helper()
	data, err := os.ReadFile(file)
	f.must(err)
	data[len(data)/2] ^= 1
	to := filepath.Join(f.TempDir(), "changed")
	f.must(os.WriteFile(to, data, 0o600))
	return to
}
