// Package measuretest has what the tests of programs that measure a pool need.
package measuretest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/backends"
)

// Program builds the program that is measured, and returns its path.
func Program(tb testing.TB) string {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "penstock")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/penstock-run/penstock/cmd/penstock").CombinedOutput(); err != nil {
		tb.Fatalf("build: %v\n%s", err, out)
	}
	return program
}

// NeedJail skips a test where no jail can be made, or fails it where PENSTOCK_TEST_REQUIRE promises one.
func NeedJail(tb testing.TB) {
	tb.Helper()
	_, err := backends.New(tb.Context(), backends.Auto)
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "bwrap"):
		tb.Fatalf("no jail can be made here: %v", err)
	default:
		tb.Skipf("no jail can be made here: %v", err)
	}
}
