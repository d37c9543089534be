package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A tokenBearer sends requests with a token.
type tokenBearer string

func (token tokenBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// modelOverHTTP is a model's client of a server.
func (f *fixture) modelOverHTTP(address, token string) *modelClient {
	f.Helper()
	m := &modelClient{fixture: f}
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
	session, err := client.Connect(f.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + address + "/mcp", HTTPClient: &http.Client{Transport: tokenBearer(token)}}, nil)
	f.must(err)
	f.Cleanup(func() { _ = session.Close() }) // the server may have ended before
	m.ClientSession = session
	return m
}

// token adds a token, and waits until HTTP accepts it.
func (f *fixture) token(address, name string, role jobs.Role) string {
	f.Helper()
	token := strings.TrimSpace(f.run("token", "add", name, "--role", string(role)))
	f.becomes(http.StatusOK, address, "/v1/version", token)
	return token
}

// Models over HTTP only read, whatever the role of their token, unless serve lets them
// do more.
func TestModelsOverHTTPOnlyReadByDefault(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	address := f.serveHTTP("--slots", "0")
	m := f.modelOverHTTP(address, f.token(address, "desk", jobs.RoleSubmitter))
	got := strings.Join(m.tools(), " ")
	for _, changes := range []string{"submit_job", "submit_batch", "answer", "retry_job", "cancel_job"} {
		if strings.Contains(got, changes) {
			t.Errorf("%s is offered among %s", changes, got)
		}
	}
	if !strings.Contains(got, "get_job") {
		t.Errorf("got %s", got)
	}
}

// Models over HTTP submit and read as far as the role of their token goes; what they
// submit is counted for the token, over all of its sessions, and audited under its name.
func TestModelsOverHTTP(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, code, said := f.try("serve", "--mcp-allow", "submit,delete"); code != 2 || !strings.Contains(said, "submit, answer, retry or cancel") {
		t.Errorf("an unknown word: %d, %s", code, said)
	}
	address := f.serveHTTP("--slots", "0", "--mcp-total-jobs", "2", "--mcp-allow", "submit,cancel")
	submitter, viewer := f.token(address, "desk", jobs.RoleSubmitter), f.token(address, "eyes", jobs.RoleViewer)
	var made struct{ ID string }
	job := map[string]any{"prompt": "x", "repo": f.repo, "agent": "claude"}
	for range 2 {
		m := f.modelOverHTTP(address, submitter)
		m.ok("submit_job", job, &made)
	}
	m := f.modelOverHTTP(address, submitter)
	if text, refused := m.ask("submit_job", job); !refused || !strings.HasPrefix(text, "forbidden: ") || !strings.Contains(text, "2 jobs") {
		t.Errorf("a third job in a third session: %s", text)
	}
	if got := strings.Join(m.tools(), " "); strings.Contains(got, "retry_job") || !strings.Contains(got, "cancel_job") {
		t.Errorf("a submitter has the tools %s", got)
	}
	m.ok("cancel_job", map[string]any{"id": made.ID}, nil)
	sees := f.modelOverHTTP(address, viewer)
	if got := strings.Join(sees.tools(), " "); strings.Contains(got, "submit_job") || !strings.Contains(got, "list_jobs") {
		t.Errorf("a viewer has the tools %s", got)
	}
	if text := sees.ok("get_job", map[string]any{"id": made.ID}, nil); !strings.Contains(text, `"outcome":"cancellation"`) {
		t.Errorf("the job is %s", text)
	}
	for _, want := range []string{`"operation":"submit"`, `"operation":"cancel"`, `"who":"desk"`, `"role":"submitter"`, `"via":"mcp"`} {
		if got := f.run("audit", "-o", "jsonl", "--who", "desk"); !strings.Contains(got, want) {
			t.Errorf("the audit log has no %s:\n%s", want, got)
		}
	}
}

// The real Claude Code submits a job over HTTP and reads what came of it.
func TestClaudeUsesThePoolOverHTTP(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	call := func(tool string, input map[string]any) agenttest.Reply {
		return agenttest.Reply{Calls: []agenttest.Call{{Name: "mcp__penstock__" + tool, Input: input}}}
	}
	id := func(r agenttest.Request) string {
		return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(r.Last)
	}
	model := agenttest.New(
		agenttest.Script{On: "DELEGATE", Steps: []agenttest.Step{
			func(agenttest.Request) agenttest.Reply {
				return call("submit_job", map[string]any{"prompt": "INNER", "key": "from-claude", "repo": f.repo, "agent": "claude", "model": "claude-sonnet-4-5"})
			},
			func(r agenttest.Request) agenttest.Reply { return call("wait_job", map[string]any{"id": id(r)}) },
			func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} },
		}},
		agenttest.Script{On: "INNER", Steps: []agenttest.Step{func(agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "done inside"} }}},
	)
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	f.env = []string{"ANTHROPIC_API_KEY=sk-inner", "PENSTOCK_MODEL_ANTHROPIC_URL=" + upstream.URL}
	address := f.serveHTTP("--slots", "1", "--mcp-allow", "submit")
	token := f.token(address, "desk", jobs.RoleSubmitter)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"penstock": map[string]any{
		"type": "http", "url": "http://" + address + "/mcp", "headers": map[string]string{"Authorization": "Bearer " + token},
	}}})
	f.must(err)
	file := filepath.Join(t.TempDir(), "mcp.json")
	f.must(os.WriteFile(file, config, 0o600))
	claude := exec.CommandContext(t.Context(), "claude", "-p", "DELEGATE this", "--mcp-config", file, "--strict-mcp-config", "--allowedTools", "mcp__penstock")
	claude.Dir = t.TempDir()
	claude.Env = append(os.Environ(), "HOME="+t.TempDir(), "ANTHROPIC_API_KEY=sk-test", "ANTHROPIC_BASE_URL="+upstream.URL,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	said, err := claude.CombinedOutput()
	if err != nil || !strings.Contains(string(said), `"outcome":"success"`) {
		t.Errorf("Claude Code: %v\n%s", err, said)
	}
	if list := f.list(); len(list) != 1 || list[0].Source != "mcp" || list[0].Outcome != jobs.Success {
		t.Errorf("the pool has %+v", list)
	}
}
