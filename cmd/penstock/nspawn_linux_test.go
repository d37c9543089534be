package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

//go:embed testdata/endings.sh
var endings []byte

// What holds of the end of jobs holds for units of systemd, too. On a host that was not
// booted with it, a container is.
func TestEndingsUnderSystemd(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd: the tests run on it")
	}
	out := t.TempDir()
	sandboxtest.Boot(t, out, endings)
	said, err := os.ReadFile(filepath.Join(out, "log"))
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"--- PASS: TestFinishedMeansThatNothingLives/systemd_cancel", "--- PASS: TestFinishedMeansThatNothingLives/systemd_timeout",
		"--- PASS: TestAWorkerSweepsItsOwnPool", "--- PASS: TestAWorkerSweepsItsOwnUnits",
	} {
		if !strings.Contains(string(said), want) {
			t.Errorf("the container does not say %q", want)
		}
	}
	if t.Failed() || strings.Contains(string(said), "--- FAIL") {
		t.Errorf("in the container:\n%s", said)
	}
}
