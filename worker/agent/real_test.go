package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

func TestMain(m *testing.M) {
	if os.Getenv("ACP_AGENT") != "" {
		beAgent(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// requireProgram skips the test where the real agent is missing, or fails it
// where PENSTOCK_TEST_REQUIRE promises it.
func requireProgram(tb testing.TB, name string) (*agent.Agents, agent.Program) {
	tb.Helper()
	cfg := agent.Config{Path: os.Getenv("PATH"), Programs: map[string]string{}}
	if path := os.Getenv("PENSTOCK_" + strings.ToUpper(name)); path != "" {
		cfg.Programs[name] = path
	}
	agents := agent.New(cfg)
	p, err := agents.Check(tb.Context(), name)
	if err != nil {
		require(tb, name, err)
	}
	tb.Logf("%s %s", name, p.Version)
	return agents, p
}

func require(tb testing.TB, what string, err error) {
	tb.Helper()
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), what) {
		tb.Fatal(err)
	}
	tb.Skip(err)
}

// A run is what one run of an agent gave.
type run struct {
	events []event.Event
	end    jobs.Ended
	total  agent.Total
}

func (r run) count(kind jobs.Kind) int {
	n := 0
	for _, e := range r.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// data is all the data of the events of a kind.
func (r run) data(kind jobs.Kind) string {
	var b strings.Builder
	for _, e := range r.events {
		if e.Kind == kind {
			b.Write(e.Data)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// A conversation is what a worker does between an agent and its decoder.
type conversation struct {
	mu    sync.Mutex
	run   run
	d     agent.Decoder
	stdin io.WriteCloser
	abort func() // ends a run that cannot end well

	answers map[string]control.Words // to the questions of an interactive job
	say     []string                 // what is said when the agent is idle
	// hear is told each event, and what it returns the agent hears.
	hear func(e event.Event) [][]byte
}

func (c *conversation) begin(p agent.Plan) {
	for _, line := range p.Stdin {
		_, _ = c.stdin.Write(append(line, '\n')) // it may have died; its exit tells
	}
	if !p.KeepStdin {
		_ = c.stdin.Close()
	}
}

func (c *conversation) read(r io.Reader, stream string) error {
	return agent.ReadLines(r, stream, agent.MaxLine, func(l agent.Line) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		got := c.d.Line(l)
		c.run.events = append(c.run.events, got.Events...)
		for _, reply := range got.Reply {
			_, _ = c.stdin.Write(append(reply, '\n')) // as above
		}
		c.interact(got)
		if got.Hopeless != "" {
			c.abort()
		}
		return nil
	})
}

// interact acts as a person who watches; it never closes stdin.
func (c *conversation) interact(got agent.Read) {
	var lines [][]byte
	for _, e := range got.Events {
		var asked struct {
			Ask string `json:"ask"`
		}
		if e.Kind == jobs.AskOpened && c.answers != nil && json.Unmarshal(e.Data, &asked) == nil {
			events, reply, err := c.d.(agent.Speaker).Answer(control.Message{Ask: asked.Ask, Answers: c.answers})
			if err != nil {
				c.abort()
			}
			c.run.events, lines = append(c.run.events, events...), append(lines, reply...)
		}
		if c.hear != nil {
			lines = append(lines, c.hear(e)...)
		}
	}
	switch {
	case got.State != agent.Idle && got.State != agent.Over || len(lines) > 0:
	case len(c.say) > 0:
		lines = append(lines, c.d.(agent.Speaker).Say(jobs.NewID(), c.say[0])...)
		c.say = c.say[1:]
	default:
		_ = c.stdin.Close() // twice does no harm
	}
	for _, line := range lines {
		_, _ = c.stdin.Write(append(line, '\n')) // it may have died; its exit tells
	}
}

func (c *conversation) close(code int, signal string) run {
	e, end := c.d.Exit(code, signal)
	c.run.events, c.run.end, c.run.total = append(c.run.events, e), end, c.d.Total()
	return c.run
}

// unjailed runs an agent as a plain process: what the adapter does is tested
// apart from what the jail does.
func unjailed(t *testing.T, agents *agent.Agents, l agent.Launch, home string) run {
	t.Helper()
	return talk(t, agents, l, home, &conversation{})
}

func talk(t *testing.T, agents *agent.Agents, l agent.Launch, home string, c *conversation) run {
	t.Helper()
	adapter, err := agents.Get(l.Job.Agent.Name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := adapter.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	cmd.Dir = l.Cwd
	cmd.Env = append(p.Env, "PATH="+os.Getenv("PATH"), "HOME="+home, "TMPDIR="+home, "CLAUDE_CODE_TMPDIR="+home, "LANG=C.UTF-8",
		"CLAUDE_CODE_MAX_RETRIES=2") // the real number takes half a minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.d, c.stdin, c.abort = adapter.Decoder(l), stdin, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
	c.begin(p)
	var reading sync.WaitGroup
	reading.Go(func() { _ = c.read(stdout, agent.Stdout) }) // the exit tells what broke
	reading.Go(func() { _ = c.read(stderr, agent.Stderr) })
	reading.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](cmd.Wait()); ok && exit.ProcessState.ExitCode() < 0 {
		return c.close(-1, exit.ProcessState.Sys().(syscall.WaitStatus).Signal().String())
	}
	return c.close(cmd.ProcessState.ExitCode(), "")
}

// prompted is the launch of a job with that prompt, in an empty directory.
func prompted(t *testing.T, name, prompt string, p agent.Program, gate string) agent.Launch {
	t.Helper()
	id := jobs.NewID()
	return agent.Launch{
		Job: jobs.Job{Prompt: prompt, Agent: jobs.Agent{Name: name}}.WithDefaults(),
		ID:  id, Session: id, Attempt: 1, Cwd: t.TempDir(), Files: t.TempDir(), Gate: gate, Key: jailKey, Program: p,
	}
}

func transcript(t *testing.T, r run) {
	t.Helper()
	for _, e := range r.events {
		t.Logf("%d %s %.300s", e.Turn, e.Kind, e.Data)
	}
	t.Logf("%+v %+v", r.end, r.total)
}

func bash(command string) agenttest.Step {
	return agenttest.Use("Bash", map[string]any{"command": command, "description": "run it"})
}

var question = map[string]any{"questions": []any{map[string]any{
	"question": "Which?", "header": "H", "multiSelect": false,
	"options": []any{map[string]any{"label": "A", "description": "a"}, map[string]any{"label": "B", "description": "b"}},
}}}

func TestRealClaude(t *testing.T) {
	agents, program := requireProgram(t, "claude")
	last := func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "LAST " + r.Last} }
	model := agenttest.New(
		agenttest.Script{On: "EDIT", Steps: []agenttest.Step{
			bash("printf 'hello\\n' > hello.txt; echo made"),
			agenttest.Use("Read", map[string]any{"file_path": "hello.txt"}),
			func(r agenttest.Request) agenttest.Reply {
				return agenttest.Reply{Calls: []agenttest.Call{{Name: "Edit", Input: map[string]any{
					"file_path": "hello.txt", "old_string": "hello", "new_string": "goodbye",
				}}}}
			},
			agenttest.Say("done"),
		}},
		agenttest.Script{On: "ASK", Steps: []agenttest.Step{agenttest.Use("AskUserQuestion", question), last}},
		agenttest.Script{On: "RECOVER", Steps: []agenttest.Step{func(r agenttest.Request) agenttest.Reply {
			if r.Try < 2 {
				return agenttest.Reply{Status: 500, Error: "api_error"}
			}
			return agenttest.Reply{Text: "recovered"}
		}}},
		agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "authentication_error")}},
		agenttest.Script{On: "LIMIT", Steps: []agenttest.Step{bash("true")}},
		agenttest.Script{On: "LATER", Steps: []agenttest.Step{
			agenttest.Use("Bash", map[string]any{"command": "sleep 1; touch late", "run_in_background": true, "description": "later"}),
			agenttest.Say("begun"),
		}},
		agenttest.Script{On: "SPENT", Steps: []agenttest.Step{agenttest.Fail(400, "invalid_request_error")}},
		agenttest.Script{On: "SLASH", Steps: []agenttest.Step{agenttest.Say("no command")}},
		agenttest.Script{On: "BIG", Steps: []agenttest.Step{agenttest.Use("Write", map[string]any{
			"file_path": "big.txt", "content": strings.Repeat("0123456789abcde\n", 40_000)}), agenttest.Say("big")}},
	)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close) // the tests below run after this function has returned

	tests := []struct {
		prompt string
		set    func(l *agent.Launch)
		reason jobs.Reason
		check  func(t *testing.T, l agent.Launch, r run)
	}{
		{prompt: "EDIT", check: func(t *testing.T, l agent.Launch, r run) {
			got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt"))
			if err != nil || string(got) != "goodbye\n" {
				t.Errorf("file %q, err %v", got, err)
			}
			if r.count(jobs.ToolStarted) != 3 || r.count(jobs.ToolEnded) != 3 || r.count(jobs.FileChanged) != 1 {
				t.Errorf("%d tools began, %d ended, %d files changed", r.count(jobs.ToolStarted), r.count(jobs.ToolEnded), r.count(jobs.FileChanged))
			}
			if r.total.Usage.Input != 4000 || r.total.Usage.Output != 200 || r.total.Session != l.Session {
				t.Errorf("total %+v", r.total)
			}
		}},
		{prompt: "ASK", check: func(t *testing.T, _ agent.Launch, r run) {
			if r.count(jobs.AskOpened) != 1 || r.count(jobs.AskClosed) != 1 || !strings.Contains(r.data(jobs.TurnEnded), "This is an unattended run") {
				t.Errorf("the model was told %s", r.data(jobs.TurnEnded))
			}
		}},
		{prompt: "RECOVER", check: func(t *testing.T, _ agent.Launch, r run) {
			if r.count(jobs.RetryReported) == 0 || !strings.Contains(r.data(jobs.TurnEnded), "recovered") {
				t.Errorf("turns %s", r.data(jobs.TurnEnded))
			}
		}},
		{prompt: "DENIED", reason: jobs.Unauthorized, check: func(t *testing.T, _ agent.Launch, r run) {
			if n := r.count(jobs.RetryReported); n > 3 {
				t.Errorf("%d retries of what is hopeless", n)
			}
		}},
		{prompt: "LIMIT", reason: jobs.TurnLimit, set: func(l *agent.Launch) { l.Job.Agent.MaxTurns = 2 }},
		{prompt: "SPENT", reason: jobs.AgentFailed},
		{prompt: "LATER", check: func(t *testing.T, l agent.Launch, r run) {
			if _, err := os.Stat(filepath.Join(l.Cwd, "late")); err != nil {
				t.Errorf("background work was not waited for: %v", err)
			}
		}},
		{prompt: "/clear SLASH", check: func(t *testing.T, _ agent.Launch, r run) {
			if !strings.Contains(r.data(jobs.TurnEnded), "no command") {
				t.Errorf("turns %s", r.data(jobs.TurnEnded))
			}
		}},
		{prompt: "BIG", check: func(t *testing.T, l agent.Launch, r run) {
			info, err := os.Stat(filepath.Join(l.Cwd, "big.txt"))
			if err != nil || info.Size() != 640_000 || r.count(jobs.AgentRaw) != 0 {
				t.Errorf("file %v, err %v, %d lines not understood", info, err, r.count(jobs.AgentRaw))
			}
		}},
		{prompt: "anything", set: func(l *agent.Launch) { l.Gate = "http://127.0.0.1:1" }, reason: jobs.ModelUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.prompt, func(t *testing.T) {
			t.Parallel()
			l := prompted(t, "claude", tt.prompt, program, srv.URL)
			if tt.set != nil {
				tt.set(&l)
			}
			r := unjailed(t, agents, l, t.TempDir())
			if r.end.Reason != tt.reason {
				t.Errorf("ended %+v, want reason %q", r.end, tt.reason)
			}
			if tt.check != nil {
				tt.check(t, l, r)
			}
			if t.Failed() {
				transcript(t, r)
			}
		})
	}
}

// A later attempt goes on where an earlier one ended, in another process.
func TestRealClaudeResumes(t *testing.T) {
	agents, program := requireProgram(t, "claude")
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Say("one"),
		func(r agenttest.Request) agenttest.Reply {
			return agenttest.Reply{Text: "two, after " + r.First + r.Last}
		},
	}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	home := t.TempDir()
	l := prompted(t, "claude", "FIRST", program, srv.URL)
	first := unjailed(t, agents, l, home)
	if first.end.Outcome != jobs.Success || first.total.Session != l.Session {
		t.Fatalf("ended %+v, %+v", first.end, first.total)
	}
	again := l
	again.Attempt = 2
	if r := unjailed(t, agents, again, home); r.end.Outcome != jobs.Success || r.total.Session == l.Session {
		t.Errorf("another attempt: %+v, %+v", r.end, r.total)
	}
	l.Attempt, l.Resume, l.Prompt = 3, first.total.Session, "the check failed"
	r := unjailed(t, agents, l, home)
	if r.end.Outcome != jobs.Success || r.total.Session != first.total.Session {
		t.Errorf("resumed: %+v, %+v", r.end, r.total)
	}
	if got := r.data(jobs.TurnEnded); !strings.Contains(got, "two, after") || !strings.Contains(got, "FIRST") || !strings.Contains(got, "the check failed") {
		t.Errorf("the model was told %s", got)
	}
	if r.total.Usage.Input != 1000 {
		t.Errorf("what was used before is counted again: %+v", r.total)
	}
	if t.Failed() {
		transcript(t, r)
	}
}

// A person answers the agent's question, and sends another prompt after its turn.
func TestRealClaudeInteractive(t *testing.T) {
	agents, program := requireProgram(t, "claude")
	told := func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "told " + r.Last} }
	model := agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{agenttest.Use("AskUserQuestion", question), told}})
	srv := httptest.NewServer(model)
	defer srv.Close()
	l := prompted(t, "claude", "FIRST", program, srv.URL)
	l.Job.Agent.Interactive = true
	r := talk(t, agents, l, t.TempDir(), &conversation{answers: map[string]control.Words{"Which?": {"B"}}, say: []string{"/and more"}})
	turns := r.data(jobs.TurnEnded)
	if r.count(jobs.TurnEnded) != 2 || !strings.Contains(turns, `=\"B\"`) || !strings.Contains(turns, "/and more") || r.end.Outcome != jobs.Success {
		t.Errorf("ended %+v, turns %s", r.end, turns)
	}
	if t.Failed() {
		transcript(t, r)
	}
}

func codexRun(command string) agenttest.Step {
	return agenttest.Use("exec_command", map[string]any{"cmd": command})
}

func TestRealCodex(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	model := agenttest.New(
		agenttest.Script{On: "EDIT", Steps: []agenttest.Step{codexRun("printf 'hello\\n' > hello.txt; echo made"), agenttest.Say("done")}},
		agenttest.Script{On: "DENIED", Steps: []agenttest.Step{agenttest.Fail(401, "invalid_api_key")}},
	)
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close) // as above
	tests := []struct {
		prompt string
		reason jobs.Reason
		check  func(t *testing.T, l agent.Launch, r run)
	}{
		{prompt: "please\nEDIT", check: func(t *testing.T, l agent.Launch, r run) {
			if got, err := os.ReadFile(filepath.Join(l.Cwd, "hello.txt")); err != nil || string(got) != "hello\n" {
				t.Errorf("file %q, err %v", got, err)
			}
			if r.count(jobs.ToolEnded) != 1 || r.total.Usage.Input != 2000 || r.total.Usage.Output != 100 || r.total.Session == "" {
				t.Errorf("%d tools, total %+v", r.count(jobs.ToolEnded), r.total)
			}
		}},
		{prompt: "DENIED", reason: jobs.Unauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.prompt, func(t *testing.T) {
			t.Parallel()
			l := prompted(t, "codex", tt.prompt, program, srv.URL)
			l.Job.Agent.Model = "gpt-5.5"
			r := unjailed(t, agents, l, t.TempDir())
			if r.end.Reason != tt.reason {
				t.Errorf("ended %+v, want reason %q", r.end, tt.reason)
			}
			if tt.check != nil {
				tt.check(t, l, r)
			}
			if t.Failed() {
				transcript(t, r)
				t.Logf("%+v", model.Requests())
			}
		})
	}
}

func TestRealCodexResumes(t *testing.T) {
	agents, program := requireProgram(t, "codex")
	srv := httptest.NewServer(agenttest.New(agenttest.Script{On: "FIRST", Steps: []agenttest.Step{
		agenttest.Say("one"),
		func(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "two, after " + r.Last} },
	}}))
	defer srv.Close()
	home := t.TempDir()
	l := prompted(t, "codex", "FIRST", program, srv.URL)
	l.Job.Agent.Model = "gpt-5.5"
	first := unjailed(t, agents, l, home)
	l.Attempt, l.Resume, l.Prompt = 2, first.total.Session, "the check failed"
	r := unjailed(t, agents, l, home)
	if r.end.Outcome != jobs.Success || r.total.Session != first.total.Session || !strings.Contains(r.data(jobs.TurnEnded), "two, after the check failed") {
		t.Errorf("resumed: %+v, %+v, %s", r.end, r.total, r.data(jobs.TurnEnded))
		transcript(t, r)
	}
}
