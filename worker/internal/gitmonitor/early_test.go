package gitmonitor

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// Git runs the hook for most of its commands. With one of these packages below it, this one
// would be initialised after most of a large program.
func TestTheHookBeginsEarly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, late := range []string{"reflect", "strings", "path/filepath"} {
		if slices.Contains(deps, late) {
			t.Errorf("%s is imported", late)
		}
	}
	if !slices.Contains(deps, "os") {
		t.Errorf("the list is wrong: %q", deps)
	}
}

func TestTheWorkspaceIsWhereJailsShowIt(t *testing.T) {
	if workspacePath != sandbox.WorkspacePath {
		t.Errorf("got %s, want %s", workspacePath, sandbox.WorkspacePath)
	}
}
