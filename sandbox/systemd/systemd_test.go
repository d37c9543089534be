package systemd_test

import (
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"github.com/penstock-run/penstock/sandbox/systemd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	sandboxtest.ServeRunner(&systemd.Backend{}, nil)
	goleak.VerifyTestMain(m)
}

func TestAttacks(t *testing.T) { sandboxtest.Run(t, &systemd.Backend{}) }

func TestCompatible(t *testing.T) { sandboxtest.Compatible(t, &systemd.Backend{}) }

func TestKill(t *testing.T) { sandboxtest.Kill(t, &systemd.Backend{}, 3, nil) }

func TestActivity(t *testing.T) { sandboxtest.Active(t, &systemd.Backend{}, nil) }

func TestRunnerKilled(t *testing.T) { sandboxtest.RunnerKilled(t, &systemd.Backend{}, false) }
