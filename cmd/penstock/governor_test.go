package main

import (
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A key that the model API refuses is asked once, and no job of it begins any more, also when the
// server was killed meanwhile. The commands name the key by its digest.
func TestAPoolWhoseKeyIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl", "no curl")
	}
	f := newFixture(t)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{agenttest.Fail(401, "authentication_error")}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	const key = "sk-refused-0123456789"
	f.env = []string{"ANTHROPIC_API_KEY=" + key, "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	server, _ := f.serve("--slots", "1")
	held := func() string {
		t.Helper()
		id := f.submit(`curl -sS -m 60 -H "x-api-key: $ANTHROPIC_API_KEY" `+
			`-d '{"model":"claude-opus-5","max_tokens":9,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages"`, "--model", "opus")
		f.eventually(60*time.Second, "the job waits", func() bool { return f.record(id).Reason != "" })
		if rec := f.record(id); rec.State != jobs.Delayed || rec.Reason != jobs.KeyRefused || rec.Counted != 0 {
			t.Errorf("%s, %s: %s", rec.State, rec.Reason, rec.Message)
		}
		return id
	}
	first := held()
	server.kill()
	f.serve("--slots", "1")
	second := held()
	if n := len(model.Requests()); n != 1 {
		t.Errorf("the API was asked %d times", n)
	}
	for _, id := range []string{first, second} {
		if said := f.run("why", id); !strings.Contains(said, "key_refused") || !strings.Contains(said, "anthropic/") || strings.Contains(said, key) {
			t.Errorf("why says %s", said)
		}
	}
	if said := f.run("queue", "ls"); !strings.Contains(said, "2, 2 key_refused") {
		t.Errorf("queue ls says\n%s", said)
	}
}
