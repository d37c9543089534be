package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

//go:embed testdata/units.sh
var unitsScript []byte

// Server and worker as services of systemd: installed by the command, killed, silent,
// reloaded, stopped. What they are to do there is in the script.
func TestServicesOfSystemd(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	sandboxtest.Boot(t, out, unitsScript)
	said, err := os.ReadFile(filepath.Join(out, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(unitsScript)) {
		if _, step, ok := strings.Cut(line, `ok "`); ok {
			step = strings.TrimSuffix(strings.TrimSpace(step), `"`)
			if !strings.Contains(string(said), "ok: "+step) {
				t.Errorf("not reached: %s", step)
			}
		}
	}
	if t.Failed() {
		t.Errorf("in the container:\n%s", said)
	}
	t.Logf("%s", said)
}
