package gitmonitor

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// Git runs the hook for most of its commands. Package reflect below this one would let
// all packages of the program be initialised first.
func TestTheHookBeginsEarly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if slices.Contains(deps, "reflect") || !slices.Contains(deps, "os") {
		t.Errorf("it imports %q", deps)
	}
}

func TestTheWorkspaceIsWhereJailsShowIt(t *testing.T) {
	if workspacePath != sandbox.WorkspacePath {
		t.Errorf("got %s, want %s", workspacePath, sandbox.WorkspacePath)
	}
}
