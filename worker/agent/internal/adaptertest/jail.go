package adaptertest

import (
	"context"
	"io"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/gate"
)

// The key of the model API, which only the gate has, and the key in the jail.
const (
	RealKey = "sk-real-key-that-must-stay-outside"
	JailKey = "penstock-key-of-the-jail"
)

// Gated is an agent's way to the model: a gate, and the session that it serves.
type Gated struct {
	Gate    *gate.Gate
	Session *gate.Session
}

// Jailed runs an agent as a worker does: in a strict jail, whose only way out
// is a gate to the model.
func Jailed(t *testing.T, agents *agent.Agents, l agent.Launch, way Gated) Run {
	t.Helper()
	adapter, err := agents.Get(l.Job.Agent.Name)
	if err != nil {
		t.Fatal(err)
	}
	workspace := l.Cwd
	l.Cwd, l.Files, l.Gate, l.Key = sandbox.WorkspacePath, "/run/penstock", "http://127.0.0.1:3128", JailKey
	p, err := adapter.Launch(l)
	if err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{
		Args: p.Args,
		Env: append(p.Env, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+sandbox.HomePath, "TMPDIR=/tmp", "LANG=C.UTF-8",
			"CLAUDE_CODE_MAX_RETRIES=2"),
		Workspace: workspace, Network: sandbox.NetworkGate, Listen: []string{"127.0.0.1:3128"},
	}
	for name, value := range l.Job.Env {
		spec.Env = append(spec.Env, name+"="+value)
	}
	for _, name := range l.Job.Secrets {
		spec.Env = append(spec.Env, name+"=value of "+name)
	}
	for _, m := range p.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m, Target: m})
	}
	for _, f := range p.Files {
		spec.Files = append(spec.Files, sandbox.File{Path: filepath.Join(l.Files, f.Path), Data: f.Content})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	stdout, toStdout := io.Pipe()
	stderr, toStderr := io.Pipe()
	proc, err := sandbox.Start(ctx, &bwrap.Backend{}, spec, sandbox.Streams{StdinPipe: true, Stdout: toStdout, Stderr: toStderr})
	if err != nil {
		t.Fatal(err)
	}
	c := &Conversation{Decoder: adapter.Decoder(l), stdin: proc.Stdin(), abort: func() { go func() { _ = proc.Close(ctx) }() }}
	c.begin(p)
	var running sync.WaitGroup
	running.Go(func() { _ = c.read(stdout, agent.Stdout) }) // the exit tells what broke
	running.Go(func() { _ = c.read(stderr, agent.Stderr) })
	running.Go(func() {
		if err := way.Gate.Serve(ctx, way.Session, proc.Listeners()[0]); err != nil {
			t.Errorf("gate: %v", err)
		}
	})
	exit, err := proc.Wait()
	if err != nil {
		t.Errorf("jail: %v", err)
	}
	_, _ = toStdout.Close(), toStderr.Close() // never fails
	running.Wait()
	signal := ""
	if exit.Signal != 0 {
		signal = exit.Signal.String()
	}
	return c.close(exit.Code, signal)
}

// RequireJail skips the test where there is no bubblewrap.
func RequireJail(tb testing.TB) {
	tb.Helper()
	if _, err := (&bwrap.Backend{}).Check(tb.Context()); err != nil {
		require(tb, "bwrap", err)
	}
}

// NewGate is a gate to the model.
func NewGate(t *testing.T, api string, model *agenttest.Model) *gate.Gate {
	t.Helper()
	srv := httptest.NewServer(model)
	t.Cleanup(srv.Close)
	g, err := gate.New(gate.Config{API: api, Upstream: srv.URL, Key: RealKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}
