package adaptertest

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
	"github.com/penstock-run/penstock/worker/agent/harness"
	"github.com/penstock-run/penstock/worker/gate"
)

// The key of the model API, which only the gate has, and the key in the jail.
const (
	RealKey = harness.RealKey
	JailKey = harness.JailKey
)

// Gated is an agent's way to the model: a gate, and the session that it serves.
type Gated = harness.Gated

// Jailed runs an agent as a worker does: in a strict jail, whose only way out
// is a gate to the model.
func Jailed(t *testing.T, agents *agent.Agents, l agent.Launch, way Gated) Run {
	t.Helper()
	adapter, err := agents.Get(l.Job.Agent.Name)
	if err != nil {
		t.Fatal(err)
	}
	jail := harness.Jail{
		Backend: &bwrap.Backend{}, Limit: 90 * time.Second,
		Spec: sandbox.Spec{Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "CLAUDE_CODE_MAX_RETRIES=2"}},
	}
	for _, name := range l.Job.Secrets {
		jail.Spec.Env = append(jail.Spec.Env, name+"=value of "+name)
	}
	run, err := jail.Run(t.Context(), adapter, l, way, &Conversation{})
	if err != nil {
		t.Errorf("jail: %v", err)
	}
	return run
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
