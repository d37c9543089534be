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
// A test binary that makes attempts begins its TestMain with [Main].
package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

const probeWord = "sandboxtest-probe"

// Main is the first statement of TestMain where attempts are made. It returns
// only where this process is no attacker.
func Main() {
	if len(os.Args) > 2 && os.Args[1] == probeWord {
		fmt.Println(attempt(os.Args[2], os.Args[3:]))
		syscall.Exit(0) // os.Exit would sleep a second under the race detector
	}
}

// Features lists every feature there is.
func Features() []sandbox.Feature {
	return []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureIPC, sandbox.FeatureNetwork, sandbox.FeatureSyscalls,
		sandbox.FeaturePrivileges, sandbox.FeatureLandlock, sandbox.FeatureTemporary, sandbox.FeatureKill,
		sandbox.FeatureMemory, sandbox.FeatureCPU, sandbox.FeaturePIDs, sandbox.FeatureFileSize, sandbox.FeatureOpenFiles,
		sandbox.FeatureCPUWeight, sandbox.FeatureDisk, sandbox.FeatureInodes, sandbox.FeatureOutput, sandbox.FeatureLayers, sandbox.FeatureImage,
	}
}

// Enforced lists the features that hold for the jails of b here, by whatever means. On a busy
// machine, and on an emulated one, a first jail may take longer than the backend waits for it:
// its programs are not in memory yet. So it is tried again there.
func Enforced(ctx context.Context, b sandbox.Backend) ([]sandbox.Feature, error) {
	enforced, err := b.Check(ctx)
	for tries := 1; err != nil && tries < 4 && slowtest.Limit(time.Second) > time.Second; tries++ {
		enforced, err = b.Check(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range Features() {
		if f.Kept() {
			enforced = append(slices.Clip(enforced), f)
		}
	}
	return enforced, nil
}

// without lists the features that are not among these.
func without(enforced []sandbox.Feature) []sandbox.Feature {
	return slices.DeleteFunc(Features(), func(f sandbox.Feature) bool { return slices.Contains(enforced, f) })
}

// Require skips the test, saying why, unless b enforces all features here.
// If PENSTOCK_TEST_REQUIRE names the backend it fails instead, so that a test
// does not silently stop running.
func Require(tb testing.TB, b sandbox.Backend, features ...sandbox.Feature) {
	tb.Helper()
	report := tb.Skipf
	if required(b.Name()) {
		report = tb.Fatalf
	}
	enforced, err := Enforced(context.Background(), b)
	if err != nil {
		report("backend %s: %v", b.Name(), err)
	}
	for _, f := range features {
		if !slices.Contains(enforced, f) {
			report("backend %s does not enforce %s here", b.Name(), f)
		}
	}
}

// required reports whether PENSTOCK_TEST_REQUIRE promises something.
func required(name string) bool {
	return slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), name)
}
