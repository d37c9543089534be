package contract_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agent/contract"
	"github.com/penstock-run/penstock/worker/agent/harness"
)

func TestMain(m *testing.M) {
	if mistake := os.Getenv(mistakeVariable); mistake != "" {
		beFake(mistake)
		return
	}
	goleak.VerifyTestMain(m)
}

// test tests an agent, and fails the test if something is left behind.
func test(t *testing.T, agents *agent.Agents, name string, limit time.Duration, only ...string) (contract.Report, error) {
	t.Helper()
	exectest.Need(t, "bwrap")
	exectest.Need(t, "curl")
	exectest.Need(t, "jq")
	dir := t.TempDir()
	suite := contract.Suite{Agents: agents, Only: only, Dir: dir, Jail: harness.Jail{
		Backend: &bwrap.Backend{}, Limit: limit, Spec: sandbox.Spec{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}},
	}}
	report, err := suite.Test(t.Context(), name)
	if left, errLeft := os.ReadDir(dir); errLeft != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, errLeft)
	}
	return report, err
}

// described are the agents of a host with one that is described as in a settings file.
func described(c agent.Custom) *agent.Agents {
	return builtin.Agents(agent.Config{Path: os.Getenv("PATH"), Custom: map[string]agent.Custom{"mine": c}})
}

// script tests a made-up agent that is a script of the shell. It finds its prompt in $p.
func script(t *testing.T, api, text string, limit time.Duration, only ...string) map[string]contract.Finding {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agent")
	if err := exectest.WriteFile(program, []byte("#!/bin/sh\np=$(cat \"$PENSTOCK_PROMPT_FILE\")\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return findings(t, described(agent.Custom{Protocol: "command", Command: []string{program}, API: api}), limit, only...)
}

// findings are those of the agent mine, by their checks.
func findings(t *testing.T, agents *agent.Agents, limit time.Duration, only ...string) map[string]contract.Finding {
	t.Helper()
	report, err := test(t, agents, "mine", limit, only...)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]contract.Finding{}
	for _, f := range report.Checks {
		found[f.Check] = f
	}
	return found
}

// call asks the model as an agent of Anthropic's API does.
const call = `printf %s "$p" >/tmp/p; jq -n --rawfile p /tmp/p --arg model "$PENSTOCK_MODEL" '{model: $model, max_tokens: 99, messages: [{role: "user", content: $p}]}' | ` +
	`curl -sf -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/messages" -H 'content-type: application/json' -d @- >/tmp/answer && jq -r '.content[].text' /tmp/answer`

// An agent that does what it must has no failed check, and each mistake is found by the check
// that is about it.
func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text   string
		failed map[string]string // checks, and a part of what was seen
	}{
		"right":              {call, nil},
		"no prompt":          {`p=hello; ` + call, map[string]string{"prompt": "did not come to the model", "model": "the job named", "two_at_once": "did not come to the model"}},
		"no answer":          {call + ` >/dev/null`, map[string]string{"prompt": "no event has the model's answer"}},
		"another model":      {`PENSTOCK_MODEL=mine; ` + call, map[string]string{"model": `"mine"`}},
		"an untidy one":      {`touch litter; ` + call, map[string]string{"workspace": "litter"}},
		"a curious one":      {`curl -s -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/files"; ` + call, map[string]string{"network": "refused 1 requests"}},
		"failure is success": {call + `; exit 0`, map[string]string{"failure": "ended with success"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := script(t, "anthropic", tt.text, slowtest.Limit(time.Minute), "basics", "isolation", "failure")
			for _, check := range []string{"prompt", "workspace", "network", "model", "secrets", "failure"} {
				if got := found[check].Status; got != contract.Yes && tt.failed[check] == "" {
					t.Errorf("%s: %s, want yes", check, got)
				}
			}
			for _, f := range found {
				want, fails := tt.failed[f.Check]
				if fails != (f.Status == contract.Failed) || !strings.Contains(f.Seen, want) {
					t.Errorf("%s: %s %q, want failed: %v, %q", f.Check, f.Status, f.Seen, fails, want)
				}
			}
		})
	}
}

// Whatever a made-up agent does, there is a report, and soon.
func TestEndsOfAgents(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		api, text string
		limit     time.Duration
		want      map[string]contract.Status
		seen      string // of its prompt
	}{
		"hangs":    {"anthropic", `trap "" TERM; sleep 1000`, time.Second, map[string]contract.Status{"prompt": contract.Failed, "failure": contract.Untried}, ""},
		"dies":     {"anthropic", `kill -9 $$`, slowtest.Limit(time.Minute), map[string]contract.Status{"prompt": contract.Failed}, "agent_crashed"},
		"no model": {"", `echo hello`, slowtest.Limit(time.Minute), map[string]contract.Status{"prompt": contract.Yes, "network": contract.Untried, "failure": contract.Untried, "resume": contract.No, "version": contract.Untried}, ""},
		"is mute":  {"", `true`, slowtest.Limit(time.Minute), map[string]contract.Status{"prompt": contract.Failed}, "printed nothing"},
		"closed":   {"", `mkdir -p "$HOME/a/b" && chmod 0 "$HOME/a"; echo hello`, slowtest.Limit(time.Minute), map[string]contract.Status{"prompt": contract.Yes}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := script(t, tt.api, tt.text, tt.limit)
			for check, want := range tt.want {
				if got := found[check]; got.Status != want {
					t.Errorf("%s: %+v, want %s", check, got, want)
				}
			}
			if got := found["prompt"].Seen; !strings.Contains(got, tt.seen) {
				t.Errorf("of its prompt was seen %q, want %q", got, tt.seen)
			}
		})
	}
}

// tested are the agents that are installed where this repository is tested.
var tested = []string{"claude", "codex", "gemini", "opencode"}

// The agents that are installed here have what the reference says of them, and nothing else.
func TestRealAgents(t *testing.T) {
	t.Parallel()
	for _, name := range tested {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exectest.Need(t, name)
			report, err := test(t, builtin.Agents(agent.Config{Path: os.Getenv("PATH")}), name, slowtest.Limit(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			adapter, err := builtin.Agents(agent.Config{}).Get(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range contract.Claims(adapter.About()) {
				if f := report.Checks[i]; f.Check != want.Check || f.Status != want.Status {
					t.Errorf("%s: %s %s, the reference says %s", f.Check, f.Status, f.Seen, want.Status)
				}
			}
			if n := len(report.Facts.Options); n < 20 {
				t.Errorf("of its options %d were found", n)
			}
		})
	}
}
