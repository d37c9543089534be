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
	f.serve("--slots", "1")
	id := f.submit("echo new >new.txt; echo said", "--deliver", "branch")
	f.run("wait", "--timeout", patience(60), id)
	dir := f.TempDir()
	fetched := filepath.Join(dir, "fetched")
	f.run("job", "artifacts", id, "--out", fetched)
	signed, patch, key, events := filepath.Join(fetched, "receipt.json"), filepath.Join(fetched, "changes.patch"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "events")
	write := func(file, content string) { f.Helper(); f.must(os.WriteFile(file, []byte(content), 0o600)) }
	write(key, f.run("receipt", "key"))
	write(events, f.run("logs", id, "-o", "jsonl"))
	commit := strings.TrimSpace(f.git("-C", f.repo, "for-each-ref", "--format=%(objectname)", "refs/heads/penstock"))

	told := f.run("receipt", "verify", signed, "--patch", patch, "--commit", commit, "--events", events, "--key", key, "-o", "json")
	for _, want := range []string{`"trusted": true`, `"job": "` + id + `"`, strings.TrimSpace(f.git("-C", f.repo, "rev-parse", "HEAD"))} {
		if !strings.Contains(told, want) {
			t.Errorf("%s is missing in\n%s", want, told)
		}
	}
	if _, code, said := f.try("receipt", "verify", signed); code != 0 || !strings.Contains(said, "nothing says whose key that is") {
		t.Errorf("without a key: %d %s", code, said)
	}

	wrong := filepath.Join(dir, "wrong")
	write(wrong, f.run("receipt", "key", "--data", filepath.Join(dir, "other")))
	for _, c := range []struct {
		says string
		args []string
	}{
		{"key: the statement is signed by", []string{signed, "--key", wrong}},
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
