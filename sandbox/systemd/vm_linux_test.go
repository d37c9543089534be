package systemd_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// TestVersion2InAnotherKernel boots an emulated machine whose control groups are
// of version 2, where a user's manager has controllers: limits hold for a user
// there, by units, and by groups that a worker asks for.
func TestVersion2InAnotherKernel(t *testing.T) {
	t.Parallel()
	if testing.Short() || os.Getenv("PENSTOCK_TEST_VM") != "" {
		t.Skip("this is the other kernel, or has no time for one")
	}
	report, args := t.Skipf, []string{}
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "qemu") {
		report, args = t.Fatalf, []string{"-d"}
	}
	args = append(args, "-s", sandboxtest.ContainerRoot(t), "testdata/vm.sh", "../internal/cgroup", ".", "../../cmd/penstock")
	out, err := exec.CommandContext(t.Context(), "../../deploy/tools/vm.sh", args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 75 {
		report("%s", out)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"PASS: TestDelegatedLimits", "PASS: TestTheScopeEndsWithItsLast", "PASS: OneProcessIsKilled",
		"PASS: DelegatedService",
		"PASS: TestAttacks/use-all-memory ", "PASS: TestAttacks/use-all-processors", "PASS: TestAttacks/fork-until-it-is-told",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s", want)
		}
	}
}
