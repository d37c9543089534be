package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// Claude Code and Codex work with subscriptions as with keys: the jails have neither the token of the one nor the login
// of the other, which is renewed before the first call.
func TestAgentsWithSubscriptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const setup, renewal = "sk-ant-oat01-0123456789abcdef", "renewal-of-the-login"
	claims := func(lasts time.Duration) string {
		text := fmt.Sprintf(`{"exp":%d}`, time.Now().Add(lasts).Unix())
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(text)) + ".c2lnbmVk"
	}
	access := claims(time.Hour)
	model := agenttest.New(agenttest.Script{Steps: []agenttest.Step{agenttest.Say("done")}})
	var claude, codex, renewed atomic.Int32
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch bearer := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); {
		case r.URL.Path == "/oauth/token":
			renewed.Add(1)
			if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), renewal) {
				t.Errorf("asked for tokens with %s, %v", body, err)
			}
			_, _ = fmt.Fprintf(w, `{"access_token":%q,"refresh_token":"the-next-one"}`, access)
			return
		case bearer == setup && strings.Contains(r.Header.Get("Anthropic-Beta"), "oauth-2025-04-20"):
			claude.Add(1)
		case bearer == access && r.Header.Get("Chatgpt-Account-Id") == "account-of-the-team" && r.URL.Path == "/v1/responses":
			codex.Add(1)
		default:
			t.Errorf("%s %s has the credential %q", r.Method, r.URL.Path, bearer)
		}
		model.ServeHTTP(w, r)
	}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	login, settings := filepath.Join(dir, "auth.json"), filepath.Join(dir, "penstock.yaml")
	f.must(os.WriteFile(filepath.Join(dir, "token"), []byte(setup+"\n"), 0o600))
	f.must(os.WriteFile(login, fmt.Appendf(nil, `{"tokens":{"access_token":%q,"refresh_token":%q,"account_id":"account-of-the-team"}}`, claims(-time.Minute), renewal), 0o600))
	f.must(os.WriteFile(settings, []byte("model:\n  keys:\n"+
		"    claude-team: {api: anthropic, via: subscription, secret_file: "+dir+"/token, url: "+upstream.URL+"}\n"+
		"    chatgpt-team: {api: openai, via: subscription, secret_file: "+login+", url: "+upstream.URL+"/v1, token_url: "+upstream.URL+"/oauth/token}\n"), 0o600))
	f.serve("--slots", "2", "--config", settings)
	for i, agent := range realAgents[:2] {
		agent.require(t)
		k := agent.begin(f)
		if rec := f.result(k.id); rec.Outcome != jobs.Success || rec.Attempts != 1 {
			t.Errorf("%s: %s (%s) in attempt %d", agent.name, rec.Outcome, rec.Message, rec.Attempts)
		}
		if made := []*atomic.Int32{&claude, &codex}[i].Load(); made == 0 {
			t.Errorf("%s made no call with the subscription", agent.name)
		}
		said := f.run("logs", k.id, "-o", "jsonl") + f.run("job", "get", "-o", "json", k.id)
		for _, secret := range []string{setup, renewal, access} {
			if strings.Contains(said, secret) {
				t.Errorf("%s: %s is told", agent.name, secret)
			}
		}
	}
	if kept, err := os.ReadFile(login); err != nil || renewed.Load() != 1 || !strings.Contains(string(kept), "the-next-one") {
		t.Errorf("renewed %d times: %s, %v", renewed.Load(), kept, err)
	}
	if said, _, _ := f.try("doctor", "--config", settings); !strings.Contains(said, "chatgpt-team") || !strings.Contains(said, "claude-team") {
		t.Errorf("doctor says\n%s", said)
	}
}
