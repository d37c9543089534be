package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A pool with two keys goes on with one while the other is refused, in the attempt that met it, and then within
// the budget of the first. The commands name keys as the settings do, and their secrets are nowhere.
func TestAPoolWithSeveralKeys(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl", "no curl")
	}
	f := newFixture(t)
	const main, spare = "sk-main-0123456789abcdef", "sk-spare-0123456789abcdef"
	var refuse, mains, spares atomic.Int32
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
		key, asked := r.Header.Get("X-Api-Key"), &spares
		if key == main {
			asked = &mains
		}
		asked.Add(1)
		if refuse.Load() > 1 || refuse.Load() > 0 && key == main {
			return agenttest.Reply{Status: 401, Error: "authentication_error"}
		}
		return agenttest.Reply{Text: "ok", Input: 1000, Output: 1}
	}}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	secret, settings := filepath.Join(dir, "spare"), filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(secret, []byte(spare+"\n"), 0o600))
	f.must(os.WriteFile(settings, []byte("model:\n  keys:\n    main: {api: anthropic, weight: 1000}\n    spare: {api: anthropic, secret_file: "+secret+"}\n"), 0o600))
	f.env = []string{"ANTHROPIC_API_KEY=sk-not-used-0123456789", "PENSTOCK_MODEL_KEY_MAIN=" + main, "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	server, _ := f.serve("--slots", "1", "--config", settings, "--budget", "key:spare=2500tokens/month")
	const ask = `curl -sSf -m 60 -H "x-api-key: $ANTHROPIC_API_KEY" ` +
		`-d '{"model":"claude-opus-5","max_tokens":9,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages" >/dev/null || exit 1; `
	refuse.Store(1)
	id := f.submit(ask+ask, "--model", "opus")
	if rec := f.result(id); rec.Outcome != jobs.Success || rec.Attempts != 1 || mains.Load() != 1 || spares.Load() != 2 {
		t.Errorf("%s (%s) in attempt %d, %d and %d calls", rec.Outcome, rec.Message, rec.Attempts, mains.Load(), spares.Load())
	}
	held := func(args ...string) jobs.Record {
		t.Helper()
		id := f.submit(ask, append([]string{"--model", "opus"}, args...)...)
		f.eventually(60*time.Second, "the job waits", func() bool { return f.record(id).Reason != "" || f.record(id).State == jobs.Finished })
		said := f.run("why", id)
		for _, key := range []string{main, spare, "sk-not-used"} {
			if strings.Contains(said+f.run("logs", id)+f.run("job", "get", "-o", "json", id), key) {
				t.Errorf("the key %s is told: %s", key, said)
			}
		}
		return f.record(id)
	}
	// The third call spends the budget of the one that is left.
	if rec := f.result(f.submit(ask, "--model", "opus")); rec.Outcome != jobs.Success {
		t.Errorf("%s (%s)", rec.Outcome, rec.Message)
	}
	if rec := held(); rec.State != jobs.Delayed || rec.Counted != 0 || rec.Reason != jobs.BudgetWaiting && rec.Reason != jobs.KeyRefused {
		t.Errorf("%s, %s: %s", rec.State, rec.Reason, rec.Message)
	}
	server.kill()
	refuse.Store(2)
	f.serve("--slots", "1", "--config", settings)
	if rec := held("--label", "n=2"); rec.State != jobs.Delayed || rec.Reason != jobs.KeyRefused || !strings.Contains(rec.Message, "main, spare") {
		t.Errorf("%s, %s: %s", rec.State, rec.Reason, rec.Message)
	}
	if said, _, _ := f.try("doctor", "--config", settings); !strings.Contains(said, "anthropic: main, spare") {
		t.Errorf("doctor says\n%s", said)
	}
}
