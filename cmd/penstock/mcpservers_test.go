package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// tickets is a server of tools elsewhere, which lets in those that have its token.
type tickets struct {
	url, token string

	mu     sync.Mutex
	called []string // tools; guarded by mu
}

func newTickets(t *testing.T) *tickets {
	t.Helper()
	s := &tickets{token: "tok-" + rand.Text()}
	server := mcp.NewServer(&mcp.Implementation{Name: "tickets", Version: "1"}, nil)
	for _, tool := range []string{"look", "remove"} {
		mcp.AddTool(server, &mcp.Tool{Name: tool, Description: "Does it."}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.called = append(s.called, tool)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ticket 17, token " + s.token}}}, nil, nil
		})
	}
	streams := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		streams.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() {
		for session := range server.Sessions() {
			_ = session.Close() // its stream would keep the server open
		}
	})
	s.url = web.URL + "/mcp"
	return s
}

// config is a file with the server, of which the agent may use one tool.
func (s *tickets) config(f *fixture, token string) string {
	f.Helper()
	data, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"tickets": map[string]any{
		"type": "http", "url": s.url, "headers": map[string]string{"Authorization": "Bearer ${" + token + "}"}, "tools": []string{"look"},
	}}})
	f.must(err)
	file := filepath.Join(f.TempDir(), "mcp.json")
	f.must(os.WriteFile(file, data, 0o600))
	return file
}

// Real agents without any network use a server elsewhere: those of its tools that the job allows,
// and without its token, which is in nothing that the pool keeps.
func TestServersElsewhereOfRealAgents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ agent, api, model, prefix string }{
		{"claude", "ANTHROPIC", "claude-sonnet-4-5", "mcp__tickets__"},
		{"codex", "OPENAI", "gpt-5.5", "mcp__tickets/"},
		{"gemini", "GOOGLE", "gemini-2.5-pro", "mcp_tickets_"},
	} {
		for _, interactive := range []bool{false, true} {
			name := tt.agent
			if interactive {
				name += " interactive"
			}
			t.Run(name, func(t *testing.T) {
				if _, err := exec.LookPath(tt.agent); err != nil {
					skip(t, tt.agent, "no %s in PATH", tt.agent)
				}
				f := newFixture(t)
				server := newTickets(t)
				model := agenttest.New(agenttest.Script{On: "LOOK", Steps: []agenttest.Step{
					agenttest.Use(tt.prefix+"look", map[string]any{}),
					agenttest.Use(tt.prefix+"remove", map[string]any{}),
					func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} },
				}})
				upstream := httptest.NewServer(model)
				t.Cleanup(upstream.Close)
				f.env = []string{tt.api + "_API_KEY=sk-real-" + rand.Text(), "PENSTOCK_MODEL_" + tt.api + "_URL=" + upstream.URL, "PENSTOCK_SECRET_TICKETS=" + server.token}
				f.serve("--slots", "1")
				args := []string{"submit", "LOOK", "--repo", f.repo, "--agent", tt.agent, "--model", tt.model, "--mcp-config", server.config(f, "TICKETS"), "--max-attempts", "1", "-o", "id"}
				if interactive {
					args = append(args, "--interactive")
				}
				id := strings.TrimSpace(f.run(args...))
				if interactive {
					talk{f, id}.seen(jobs.TurnEnded, 1)
					f.run("job", "stop", id)
				}
				f.run("wait", "--timeout", patience(120), id)
				told := []string{}
				for _, r := range model.Requests() {
					told = append(told, r.Last)
				}
				said := strings.Join(told, "\n")
				if !slices.Equal(server.called, []string{"look"}) || !strings.Contains(said, "ticket 17") || !strings.Contains(said, "not among those that the job allows: look") {
					t.Errorf("the server was called for %q; the model was told\n%s\n%s", server.called, said, f.run("logs", id))
				}
				if kept := f.run("logs", id, "-o", "json") + f.run("job", "get", id, "-o", "json") + said; strings.Contains(kept, server.token) {
					t.Error("the token is where an agent or a person reads it")
				}
				events := f.events(id)
				if f.record(id).Outcome != jobs.Success || count(events, jobs.JailViolation) != 1 {
					t.Errorf("ended as %s, with %d refusals", f.record(id).Outcome, count(events, jobs.JailViolation))
				}
			})
		}
	}
}

// A job whose server's secret the worker does not have, or whose server the worker's policy does
// not permit, ends before anything is made for it.
func TestServersElsewhereThatAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := newTickets(t)
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	f.must(os.WriteFile(rules, []byte("mcp_hosts: [tickets.example]\n"), 0o600))
	f.env = []string{"PENSTOCK_SECRET_TICKETS=" + server.token}
	f.serve("--slots", "1", "--policy", rules)
	for secret, want := range map[string]jobs.Reason{"GONE": jobs.SecretMissing, "TICKETS": jobs.PolicyDenied} {
		id := strings.TrimSpace(f.run("submit", "LOOK", "--repo", f.repo, "--agent", "claude", "--mcp-config", server.config(f, secret), "--max-attempts", "1", "-o", "id"))
		f.eventually(60*time.Second, "the job ends", func() bool { return f.record(id).State == jobs.Finished })
		if rec := f.record(id); rec.Reason != want {
			t.Errorf("%s: ended with %s: %s", secret, rec.Reason, rec.Message)
		}
	}
	if len(server.called) > 0 {
		t.Errorf("the server was called for %q", server.called)
	}
	for config, want := range map[string]string{
		`{"mcpServers":{"a":{"type":"sse","url":"https://a.example"}}}`:   `has type "sse"`,
		`{"mcpServers":{"a":{"type":"http","command":"x"}}}`:              `which is for a server with a url`,
		`{"mcpServers":{"a":{"type":"stdio","url":"https://a.example"}}}`: `which is for a server with a command`,
		`{"mcpServers":{"a":{"url":"https://a.example/?token=1"}}}`:       "agent.mcp_servers.a.url",
	} {
		file := filepath.Join(t.TempDir(), "mcp.json")
		f.must(os.WriteFile(file, []byte(config), 0o600))
		f.refused(2, []string{want}, "submit", "p", "--repo", f.repo, "--agent", "claude", "--mcp-config", file)
	}
}
