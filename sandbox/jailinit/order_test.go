package jailinit

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Most packages of a large program are initialised after reflect. With one of
// these below it, this package would be among them, and each jail would start
// two milliseconds later.
func TestThisPackageIsInitialisedEarly(t *testing.T) {
	list := exec.Command("go", "list", "-deps", ".")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	for _, late := range []string{"reflect", "strings", "fmt", "golang.org/x/sys/unix", "net/netip"} {
		if slices.Contains(deps, late) {
			t.Errorf("%s is imported", late)
		}
	}
	if !slices.Contains(deps, "os") {
		t.Errorf("the list is wrong: %v", deps)
	}
}
