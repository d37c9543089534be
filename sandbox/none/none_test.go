package none_test

import (
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func allow(s sandbox.Spec) sandbox.Spec { return s.Allow(none.Unenforced()...) }

func TestMain(m *testing.M) {
	sandboxtest.ServeRunner(&none.Backend{}, allow)
	goleak.VerifyTestMain(m)
}

func TestActivity(t *testing.T) { sandboxtest.Active(t, &none.Backend{}, allow) }

func TestKill(t *testing.T) { sandboxtest.Kill(t, &none.Backend{}, 6, allow) }

func TestRunnerKilled(t *testing.T) { sandboxtest.RunnerKilled(t, &none.Backend{}, true) }

func TestNothingIsClaimedThatIsNotEnforced(t *testing.T) {
	_, err := sandbox.Run(t.Context(), &none.Backend{}, sandbox.Spec{Args: []string{"true"}, Workspace: t.TempDir()}, sandbox.Streams{})
	if _, ok := err.(*sandbox.UnsupportedError); !ok {
		t.Errorf("without allowing anything: got %v, want an UnsupportedError", err)
	}
}
