// Package sandboxtest is the contract of a backend as tests: what a program
// in a jail may try, and what has to come of it.
//
//	fixture (host) ──▶ control: the attempt works without a jail
//	      └──────────▶ attempt inside a jail ──▶ outcome, compared
//
// The attacker is the test binary itself, executed inside, so that no
// compiler is needed. Where it is harmless, each attempt is also made outside
// first, and has to succeed there: an attack that never works proves nothing.
//
// A test binary that uses the package begins its TestMain with [Main].
package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/jailinit"
)

const probeWord = "sandboxtest-probe"

// Main is the first statement of TestMain. It returns only where this
// process is neither the first program of a jail nor an attacker in it.
func Main() {
	jailinit.Main()
	if len(os.Args) > 2 && os.Args[1] == probeWord {
		fmt.Println(attempt(os.Args[2], os.Args[3:]))
		syscall.Exit(0) // os.Exit would sleep a second under the race detector
	}
}

// Require skips the test, saying why, unless b enforces all features here.
// Where PENSTOCK_TEST_REQUIRE names the backend it fails instead, so that
// nobody misses that a test has quietly stopped running.
func Require(tb testing.TB, b sandbox.Backend, features ...sandbox.Feature) {
	tb.Helper()
	report := tb.Skipf
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), b.Name()) {
		report = tb.Fatalf
	}
	enforced, err := b.Check(context.Background())
	if err != nil {
		report("backend %s: %v", b.Name(), err)
	}
	for _, f := range features {
		if !slices.Contains(enforced, f) {
			report("backend %s does not enforce %s here", b.Name(), f)
		}
	}
}
