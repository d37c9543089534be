package exectest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Need skips the test where a program is missing, and says so. If PENSTOCK_TEST_REQUIRE
// names the program, the test fails instead.
func Need(tb testing.TB, program string) {
	tb.Helper()
	_, err := exec.LookPath(program)
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), program):
		tb.Fatalf("%s is needed: %v", program, err)
	default:
		tb.Skipf("%s is needed: %v", program, err)
	}
}
