package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// Program finds the real agent. It skips the test where the program is missing, or fails
// it where PENSTOCK_TEST_REQUIRE promises it.
func Program(tb testing.TB, adapter agent.Adapter) (*agent.Agents, agent.Program) {
	tb.Helper()
	name := adapter.About().Name
	cfg := agent.Config{Path: os.Getenv("PATH"), Programs: map[string]string{}}
	if path := os.Getenv("PENSTOCK_" + strings.ToUpper(name)); path != "" {
		cfg.Programs[name] = path
	}
	agents := agent.New(cfg, adapter)
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

// A Run is what one run of an agent gave.
type Run struct {
	Events []event.Event
	End    jobs.Ended
	Total  agent.Total
}

// Count is how many events of a kind there are.
func (r Run) Count(kind jobs.Kind) int {
	n := 0
	for _, e := range r.Events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// Data is all the data of the events of a kind.
func (r Run) Data(kind jobs.Kind) string {
	var b strings.Builder
	for _, e := range r.Events {
		if e.Kind == kind {
			b.Write(e.Data)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// A Conversation is what a worker does between an agent and its decoder.
type Conversation struct {
	mu      sync.Mutex
	run     Run
	Decoder agent.Decoder
	stdin   io.WriteCloser
	abort   func() // ends a run that cannot end well

	Home    string                   // of the agent; empty: a directory of its own
	Answers map[string]control.Words // to the questions of an interactive job
	Say     []string                 // prompts that are sent when the agent is idle
	// OnEvent gets each event. The lines that it returns are written to the agent.
	OnEvent func(e event.Event) [][]byte
}

func (c *Conversation) begin(p agent.Plan) {
	for _, line := range p.Stdin {
		_, _ = c.stdin.Write(append(line, '\n')) // it may have died; the exit shows that
	}
	if !p.KeepStdin {
		_ = c.stdin.Close()
	}
}

func (c *Conversation) read(r io.Reader, stream string) error {
	return agent.ReadLines(r, stream, agent.MaxLine, func(l agent.Line) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		got := c.Decoder.Line(l)
		c.run.Events = append(c.run.Events, got.Events...)
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
func (c *Conversation) interact(got agent.Read) {
	var lines [][]byte
	for _, e := range got.Events {
		var asked struct {
			Ask string `json:"ask"`
		}
		if e.Kind == jobs.AskOpened && c.Answers != nil && json.Unmarshal(e.Data, &asked) == nil {
			events, reply, err := c.Decoder.(agent.Speaker).Answer(control.Message{Ask: asked.Ask, Answers: c.Answers})
			if err != nil {
				c.abort()
			}
			c.run.Events, lines = append(c.run.Events, events...), append(lines, reply...)
		}
		if c.OnEvent != nil {
			lines = append(lines, c.OnEvent(e)...)
		}
	}
	switch {
	case got.State != agent.Idle && got.State != agent.Over || len(lines) > 0:
	case len(c.Say) > 0:
		lines = append(lines, c.Decoder.(agent.Speaker).Say(jobs.NewID(), c.Say[0])...)
		c.Say = c.Say[1:]
	default:
		_ = c.stdin.Close() // twice does no harm
	}
	for _, line := range lines {
		_, _ = c.stdin.Write(append(line, '\n')) // it may have died; its exit tells
	}
}

func (c *Conversation) close(code int, signal string) Run {
	e, end := c.Decoder.Exit(code, signal)
	c.run.Events, c.run.End, c.run.Total = append(c.run.Events, e), end, c.Decoder.Total()
	return c.run
}

// Unjailed runs an agent as a plain process: what the adapter does is tested
// apart from what the jail does.
func Unjailed(t *testing.T, agents *agent.Agents, l agent.Launch, home string) Run {
	t.Helper()
	return Talk(t, agents, l, &Conversation{Home: home})
}

// Talk runs an agent as a plain process, with a person who talks to it.
func Talk(t *testing.T, agents *agent.Agents, l agent.Launch, c *Conversation) Run {
	t.Helper()
	adapter, err := agents.Get(l.Job.Agent.Name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := adapter.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	home := c.Home
	if home == "" {
		home = t.TempDir()
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
	c.Decoder, c.stdin, c.abort = adapter.Decoder(l), stdin, func() { _ = cmd.Process.Signal(syscall.SIGTERM) }
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

// Prompted is the launch of a job with that prompt, in an empty directory.
func Prompted(t *testing.T, name, prompt string, p agent.Program) agent.Launch {
	t.Helper()
	id := jobs.NewID()
	return agent.Launch{
		Job: jobs.Job{Prompt: prompt, Agent: jobs.Agent{Name: name}}.WithDefaults(),
		ID:  id, Session: id, Attempt: 1, Cwd: t.TempDir(), Files: t.TempDir(), Key: JailKey, Program: p,
	}
}

// Log writes what a run gave to the log of the test.
func Log(t *testing.T, r Run) {
	t.Helper()
	for _, e := range r.Events {
		t.Logf("%d %s %.300s", e.Turn, e.Kind, e.Data)
	}
	t.Logf("%+v %+v", r.End, r.Total)
}

// Echo is a step of a model that ends a turn with the last text that it was sent.
func Echo(r agenttest.Request) agenttest.Reply { return agenttest.Reply{Text: "told " + r.Last} }

// DataOf decodes the data of an event.
func DataOf[T any](t *testing.T, e event.Event) (data T) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &data); err != nil {
		t.Fatal(err)
	}
	return data
}
