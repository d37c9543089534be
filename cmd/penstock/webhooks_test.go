package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// An issue on GitHub is a job that runs; what its sender may not cause waits for people
// among the dead letters.
func TestAnIssueRunsAnAgent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const secret = "a secret of sixteen bytes"
	dir := t.TempDir()
	f.must(os.WriteFile(filepath.Join(dir, "secret"), []byte(secret+"\n"), 0o600))
	settings := filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(settings, fmt.Appendf(nil, `
hooks:
  issues:
    source: github
    secret_file: %s/secret
    require: listed
    users: [alice]
    when: event == "issues" && body.action == "opened"
    job:
      isolation: none
      agent: {name: command, command: [bash, -c, 'grep -o "It fails" "$PENSTOCK_ISSUE_FILE"; ls "$PENSTOCK_INPUT_DIR"']}
`, dir), 0o600))
	address := freeAddress(t)
	f.serve("--slots", "1", "--http", address, "--config", settings)
	deliver := func(id, user, key string) (int, string) {
		t.Helper()
		body := fmt.Sprintf(`{"action":"opened","issue":{"number":7,"title":"It fails"},"sender":{"login":%q,"type":"User"}}`, user)
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(body))
		r, err := http.NewRequest(http.MethodPost, "http://"+address+"/hooks/issues", strings.NewReader(body))
		f.must(err)
		for name, value := range map[string]string{"Content-Type": "application/json", "X-GitHub-Event": "issues", "X-GitHub-Delivery": id, "X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil))} {
			r.Header.Set(name, value)
		}
		answer, err := http.DefaultClient.Do(r)
		f.must(err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		f.must(err)
		return answer.StatusCode, string(text)
	}
	for _, c := range []struct {
		id, user, key string
		status        int
	}{{"1", "alice", secret, 202}, {"1", "alice", secret, 202}, {"2", "alice", "another secret of bytes", 401}, {"3", "mallory", secret, 403}} {
		if status, text := deliver(c.id, c.user, c.key); status != c.status {
			t.Errorf("delivery %s of %s: %d %s, want %d", c.id, c.user, status, text, c.status)
		}
	}
	ids := strings.Fields(f.run("job", "ls", "-o", "id"))
	if len(ids) != 1 {
		t.Fatalf("the pool has jobs %v, want one", ids)
	}
	ran := func(id string) {
		t.Helper()
		f.eventually(30*time.Second, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
		if log := f.run("logs", id); !strings.Contains(log, "It fails") || !strings.Contains(log, "delivery.json") {
			t.Errorf("the agent of %s saw\n%s", id, log)
		}
	}
	ran(ids[0])
	if dead := f.run("dead", "ls"); strings.Count(dead, "\n") != 2 || !strings.Contains(dead, "mallory") {
		t.Errorf("the dead letters are\n%s", dead)
	}
	f.run("dead", "retry", "--all")
	after := strings.Fields(f.run("job", "ls", "-o", "id"))
	if len(after) != 2 {
		t.Fatalf("after a retry the pool has jobs %v, want two", after)
	}
	ran(after[1])
	// A hook that cannot work is told of when the pool starts.
	f.must(os.WriteFile(settings, []byte("hooks:\n  issues: {source: github, secret_file: /nonexistent, job: {prompt: x}}\n"), 0o600))
	f.data = filepath.Join(dir, "other")
	if _, code, told := f.try("serve", "--listen", "127.0.0.1:0", "--admin", "", "--http", "127.0.0.1:0", "--config", settings); code != 2 || !strings.Contains(told, "hooks.issues: secret_file") {
		t.Errorf("a hook without its secret: %d, %s", code, told)
	}
}
