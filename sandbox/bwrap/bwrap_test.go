package bwrap_test

import (
	"testing"

	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandboxtest.Main()
	goleak.VerifyTestMain(m)
}

func TestAttacks(t *testing.T) { sandboxtest.Run(t, &bwrap.Backend{}) }
