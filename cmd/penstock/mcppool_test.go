package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// A modelClient is an MCP client of the program.
type modelClient struct {
	*fixture
	*mcp.ClientSession
	progress atomic.Int32 // notifications
}

func (f *fixture) modelClient(args ...string) *modelClient {
	f.Helper()
	m := &modelClient{fixture: f}
	client := mcp.NewClient(&mcp.Implementation{Name: "test"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { m.progress.Add(1) },
	})
	session, err := client.Connect(f.Context(), &mcp.CommandTransport{Command: f.command(append([]string{"mcp"}, args...)...)}, nil)
	f.must(err)
	f.Cleanup(func() { _ = session.Close() })
	m.ClientSession = session
	return m
}

// ask calls a tool and returns its answer, or what it was refused with.
func (m *modelClient) ask(tool string, args map[string]any) (text string, refused bool) {
	m.Helper()
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	params.SetProgressToken("p")
	result, err := m.CallTool(m.Context(), params)
	m.must(err)
	for _, c := range result.Content {
		text += c.(*mcp.TextContent).Text
	}
	return text, result.IsError
}

// ok calls a tool that must answer, and decodes its answer.
func (m *modelClient) ok(tool string, args map[string]any, answer any) string {
	m.Helper()
	text, refused := m.ask(tool, args)
	if refused {
		m.Fatalf("%s %v: %s", tool, args, text)
	}
	if answer != nil {
		m.must(json.Unmarshal([]byte(text), answer))
	}
	return text
}

func (m *modelClient) tools() []string {
	m.Helper()
	list, err := m.ListTools(m.Context(), nil)
	m.must(err)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// A model submits, waits, reads log and patch, retries and cancels, within what its
// owner has allowed.
func TestAModelUsesThePool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "1")
	m := f.modelClient("--allow", "submit,retry,cancel", "--repo", f.repo, "--max-cost", "2", "--total-jobs", "6", "--timeout", "1m",
		"--", "bash", "-c", `echo "$PENSTOCK_PROMPT" >>dir0/file0.txt; sleep 3; echo "did $PENSTOCK_PROMPT"`)
	all := []string{"cancel_job", "get_batch", "get_job", "get_job_diff", "get_job_log", "list_jobs", "list_queues", "retry_job", "submit_batch", "submit_job", "wait_job"}
	if got := m.tools(); !slices.Equal(got, all) {
		t.Errorf("the tools are %v", got)
	}
	var made struct {
		ID        string
		Duplicate bool
	}
	for _, duplicate := range []bool{false, true} {
		m.ok("submit_job", map[string]any{"prompt": "it well", "key": "k", "max_cost": 1}, &made)
		if made.Duplicate != duplicate {
			t.Errorf("the job is a duplicate: %v, want %v", made.Duplicate, duplicate)
		}
	}
	var seen struct {
		Job    jobs.Record
		Result *jobs.Result
	}
	for seen.Job.State != jobs.Finished {
		m.ok("wait_job", map[string]any{"id": made.ID}, &seen)
	}
	if seen.Job.Outcome != jobs.Success || seen.Result == nil || m.progress.Load() == 0 {
		t.Errorf("the job ended as %s with result %v after %d notifications", seen.Job.Outcome, seen.Result, m.progress.Load())
	}
	if diff := m.ok("get_job_diff", map[string]any{"id": made.ID}, nil); !strings.Contains(diff, `+it well`) {
		t.Errorf("the patch is %s", diff)
	}
	if log := m.ok("get_job_log", map[string]any{"id": made.ID}, nil); !strings.Contains(log, "did it well") || !strings.Contains(log, "job.finished") {
		t.Errorf("the log is %s", log)
	}
	if log := m.ok("get_job_log", map[string]any{"id": made.ID, "after": 0, "limit": 1}, nil); !strings.Contains(log, "job.submitted") || strings.Contains(log, "job.finished") {
		t.Errorf("the beginning of the log is %s", log)
	}
	for tool, args := range map[string]map[string]any{
		"submit_job":   {"prompt": "x", "repo": "https://example.com/other"},
		"retry_job":    {"id": made.ID},
		"get_job":      {"id": jobs.NewID()},
		"cancel_job":   {"id": made.ID},
		"get_job_diff": {"id": made.ID, "offset": -1},
		"list_jobs":    {"since": "yesterday"},
	} {
		if text, refused := m.ask(tool, args); !refused || !strings.Contains(text, ": ") {
			t.Errorf("%s %v: %s", tool, args, text)
		}
	}
	var batch struct{ Jobs []struct{ ID, Error string } }
	items := []map[string]any{{"id": "a", "prompt": "1"}, {"id": "b c", "prompt": "2"}, {"id": "c", "prompt": "3"}}
	m.ok("submit_batch", map[string]any{"batch": "some", "items": items}, &batch)
	if len(batch.Jobs) != 3 || batch.Jobs[0].ID == "" || !strings.HasPrefix(batch.Jobs[1].Error, "invalid: ") || batch.Jobs[2].ID == "" {
		t.Errorf("the batch is %+v", batch)
	}
	if text := m.ok("cancel_job", map[string]any{"id": batch.Jobs[2].ID}, nil); !strings.Contains(text, batch.Jobs[2].ID) {
		t.Errorf("cancelled: %s", text)
	}
	if text := m.ok("get_batch", map[string]any{"batch": "some"}, nil); !strings.Contains(text, `"jobs":2`) {
		t.Errorf("the batch: %s", text)
	}
	if text := m.ok("list_jobs", map[string]any{"batch": "some", "limit": 1}, nil); strings.Count(text, `"batch":"some"`) != 1 || !strings.Contains(text, `"next"`) {
		t.Errorf("the jobs: %s", text)
	}
	if text := m.ok("list_queues", nil, nil); !strings.Contains(text, `"queue":"default"`) {
		t.Errorf("the queues: %s", text)
	}
	for i := range 4 { // the first job, two of the batch, and three more
		text, refused := m.ask("submit_job", map[string]any{"prompt": "more"})
		if refused != (i == 3) || refused && (!strings.HasPrefix(text, "forbidden: ") || !strings.Contains(text, "6 jobs")) {
			t.Errorf("job %d more: %s", i+1, text)
		}
	}
}

// Without --allow a model only reads, and without a pool there is nothing to read.
func TestAModelOnlyReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if out, code, told := f.try("mcp"); code != 7 || out != "" || !strings.Contains(told, "penstock serve") {
		t.Errorf("without a pool: %d, %s%s", code, out, told)
	}
	if _, code, told := f.try("mcp", "--allow", "submit,delete"); code != 2 || !strings.Contains(told, "submit, answer, retry or cancel") {
		t.Errorf("an unknown word: %d, %s", code, told)
	}
	f.serve("--slots", "0")
	m := f.modelClient()
	for _, tool := range m.tools() {
		if slices.Contains([]string{"submit_job", "submit_batch", "answer", "retry_job", "cancel_job"}, tool) {
			t.Errorf("it is offered %s", tool)
		}
	}
	if _, err := m.CallTool(t.Context(), &mcp.CallToolParams{Name: "submit_job", Arguments: map[string]any{"prompt": "x"}}); err == nil {
		t.Error("it could submit")
	}
}

// The real Claude Code finds the tools, submits a job and reads what came of it.
func TestClaudeUsesThePool(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("claude"); err != nil {
		skip(t, "claude", "no Claude Code in PATH: npm install -g @anthropic-ai/claude-code")
	}
	f := newFixture(t)
	f.serve("--slots", "1")
	call := func(tool string, input map[string]any) agenttest.Reply {
		return agenttest.Reply{Calls: []agenttest.Call{{Name: "mcp__penstock__" + tool, Input: input}}}
	}
	// The model takes the job's id from the answer before, as models do.
	id := func(r agenttest.Request) string {
		return regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).FindString(r.Last)
	}
	model := agenttest.New(agenttest.Script{On: "DELEGATE", Steps: []agenttest.Step{
		func(agenttest.Request) agenttest.Reply {
			return call("submit_job", map[string]any{"prompt": "write", "key": "from-claude"})
		},
		func(r agenttest.Request) agenttest.Reply { return call("wait_job", map[string]any{"id": id(r)}) },
		func(r agenttest.Request) agenttest.Reply { return call("get_job_diff", map[string]any{"id": id(r)}) },
		func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "The job changed: " + r.Last} },
	}})
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	penstock, err := exec.LookPath("penstock")
	f.must(err)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"penstock": map[string]any{
		"command": penstock, "args": []string{"mcp", "--allow", "submit", "--repo", f.repo, "--", "bash", "-c", "echo of a job >>dir0/file0.txt"},
		"env": map[string]string{"PENSTOCK_DATA": f.data},
	}}})
	f.must(err)
	file := filepath.Join(t.TempDir(), "mcp.json")
	f.must(os.WriteFile(file, config, 0o600))
	claude := exec.CommandContext(t.Context(), "claude", "-p", "DELEGATE this", "--mcp-config", file, "--strict-mcp-config", "--allowedTools", "mcp__penstock")
	claude.Dir = t.TempDir()
	claude.Env = append(os.Environ(), "HOME="+t.TempDir(), "ANTHROPIC_API_KEY=sk-test", "ANTHROPIC_BASE_URL="+upstream.URL,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	said, err := claude.CombinedOutput()
	if err != nil || !strings.Contains(string(said), "+of a job") {
		t.Errorf("Claude Code: %v\n%s", err, said)
	}
	if ids := strings.Fields(f.run("job", "ls", "-o", "id")); len(ids) != 1 {
		t.Errorf("the pool has jobs %v, want one", ids)
	}
}
