package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
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
type Run = harness.Run

// A Conversation is what a worker does between an agent and its decoder.
type Conversation = harness.Conversation

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
	for _, f := range p.Files {
		path := filepath.Join(l.Files, f.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, f.Content, 0o600)); err != nil {
			t.Fatal(err)
		}
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
	run, err := c.Hold(adapter.Decoder(l), p, func(stdout, stderr io.Writer) (harness.Process, error) {
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return harness.Process{}, err
		}
		cmd.Stdout, cmd.Stderr = stdout, stderr
		return harness.Process{Stdin: stdin, Abort: func() { _ = cmd.Process.Signal(syscall.SIGTERM) }, Wait: func() (int, string, error) {
			exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
			if ok && exit.ProcessState.ExitCode() < 0 {
				return -1, exit.ProcessState.Sys().(syscall.WaitStatus).Signal().String(), nil
			}
			return cmd.ProcessState.ExitCode(), "", nil
		}}, cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
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
