package main

import (
	"encoding/base64"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A rotation is a pool whose keys are replaced, and a model API that says with which it is asked.
type rotation struct {
	*fixture
	dir    string
	server *program

	mu    sync.Mutex
	asked []string // keys; guarded by mu
	text  string   // that the model answers; guarded by mu
}

// The keys of the rotation.
const (
	oldKey   = "sk-old-0123456789abcdef"
	newKey   = "sk-new-0123456789abcdef"
	otherKey = "sk-other-0123456789abcdef"
)

func newRotation(t *testing.T) *rotation {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		skip(t, "curl", "no curl")
	}
	r := &rotation{fixture: newFixture(t), dir: t.TempDir(), text: "go on"}
	upstream := httptest.NewServer(agenttest.New(agenttest.Script{Steps: []agenttest.Step{func(req agenttest.Request) agenttest.Reply {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = append(r.asked, req.Header.Get("X-Api-Key"))
		return agenttest.Reply{Text: r.text}
	}}}))
	t.Cleanup(upstream.Close)
	r.env = []string{"PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	r.secret("main", oldKey)
	r.settings("log: {level: info}\nmodel: {keys: {main: {api: anthropic, secret_file: " + r.dir + "/main}}}\n")
	cmd := r.command("serve", "--config", filepath.Join(r.dir, "penstock.yaml"), "--listen", "127.0.0.1:0", "--admin", "", "--slots", "1", "--drain", "1s")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	r.server = r.launch(cmd, "serving")
	return r
}

func (r *rotation) secret(name, key string) {
	r.Helper()
	r.must(os.WriteFile(filepath.Join(r.dir, name), []byte(key+"\n"), 0o600))
}

func (r *rotation) settings(text string) {
	r.Helper()
	r.must(os.WriteFile(filepath.Join(r.dir, "penstock.yaml"), []byte(text), 0o600))
}

// reload has the pool read its settings again, until it says something about it.
func (r *rotation) reload(says string) {
	r.Helper()
	before := len(r.server.log.String())
	r.must(r.server.Process.Signal(syscall.SIGHUP))
	r.eventually(20*time.Second, "it says "+says, func() bool { return strings.Contains(r.server.log.String()[before:], says) })
}

// answers sets what the model says from now on, and returns the keys it was asked with before.
func (r *rotation) answers(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = text
	return r.asked
}

// asks is an agent that calls the model until that is enough.
const asks = `until curl -sSf -m 60 -H "x-api-key: $ANTHROPIC_API_KEY" ` +
	`-d '{"model":"claude-opus-5","max_tokens":9,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages" | tee -a /tmp/answers | grep -q enough; do sleep 0.1; done; cat /tmp/answers`

// with runs a job, and fails unless all its calls had a key.
func (r *rotation) with(key, label string) {
	r.Helper()
	before := len(r.answers("enough"))
	if rec := r.result(r.submit(asks, "--label", "n="+label)); rec.Outcome != jobs.Success {
		r.Errorf("%s: %s (%s)", label, rec.Outcome, rec.Message)
	}
	for _, got := range r.answers("enough")[before:] {
		if got != key {
			r.Errorf("%s: the model was asked with %s", label, got)
		}
	}
}

// A key in a file is replaced by SIGHUP, also for a session that runs. What the model says of the old key and the new one is nowhere. Settings
// that are wrong change nothing.
func TestKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	running := r.submit(asks)
	r.eventually(60*time.Second, "the agent asks", func() bool { return len(r.answers("go on")) > 1 })
	r.secret("main", newKey)
	r.reload("keys of model APIs: 1 added, 1 removed")
	before := len(r.answers("go on"))
	r.eventually(60*time.Second, "the agent goes on", func() bool { return len(r.answers("go on")) > before+3 })
	hidden := base64.StdEncoding.EncodeToString([]byte(newKey)) // so that the gate passes it on
	asked := r.answers("enough " + oldKey + " " + newKey + " " + hidden)
	if asked[0] != oldKey {
		t.Errorf("at first the model was asked with %s", asked[0])
	}
	for i, key := range asked[before+1:] { // one request may have been under way
		if key != newKey {
			t.Errorf("request %d after the new key was asked with %s", i, key)
		}
	}
	if rec := r.result(running); rec.Outcome != jobs.Success || rec.Attempts != 1 {
		t.Errorf("%s (%s) in attempt %d", rec.Outcome, rec.Message, rec.Attempts)
	}

	r.secret("main", "")
	r.reload("the settings stay as they are: model.keys.main: secret_file: ")
	r.with(newKey, "an empty file")
	r.settings("log: {level: debug}\nmodel: {keys: {main: {api: anthropic, secret_file: main}}}\n")
	r.reload("the settings stay as they are: ")
	if said := r.server.log.String(); !strings.Contains(said, "model.keys.main: secret_file: \"main\" is not an absolute path") {
		t.Errorf("it does not say what is wrong:\n%s", said)
	}
	r.with(newKey, "wrong settings")

	r.secret("third", otherKey)
	r.settings("log: {level: info}\nmodel: {keys: {third: {api: anthropic, secret_file: " + r.dir + "/third}}}\n")
	r.reload("keys of model APIs: 1 added, 1 removed")
	r.with(otherKey, "another name")
	r.reload("keys of model APIs: 0 added, 0 removed")
	said := r.server.log.String() + r.run("logs", running) + r.run("logs", "-o", "jsonl", running) + r.run("job", "get", "-o", "json", running)
	for what, key := range map[string]string{"old": oldKey, "new": newKey, "other": otherKey, "hidden": strings.TrimRight(hidden, "=")} {
		if strings.Contains(said, key) {
			t.Errorf("the %s key is told", what)
		}
	}
	for _, name := range []string{"[redacted PENSTOCK_MODEL_KEY_MAIN]", "enough"} {
		if !strings.Contains(said, name) {
			t.Errorf("nothing says %s", name)
		}
	}
	if strings.Contains(said, "needs_restart") || strings.Contains(said, "not applied: model.keys") {
		t.Errorf("keys are said to need a restart:\n%s", said)
	}
}
