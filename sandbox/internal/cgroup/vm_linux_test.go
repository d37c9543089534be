package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// inVM says that this process is what vm.sh started: the only one of a
// machine whose control groups are of version 2.
var inVM = os.Getenv("PENSTOCK_TEST_VM") == "bare"

// Few hosts have both versions. The other one is tried in an emulated machine.
func TestVersion2InAnotherKernel(t *testing.T) {
	if inVM {
		t.Skip("this is the other kernel")
	}
	report, args := t.Skipf, []string{"."}
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "qemu") {
		report, args = t.Fatalf, []string{"-d", "."}
	}
	out, err := exec.Command("../../../deploy/tools/vm.sh", args...).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 75 {
		report("%s", out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestADelegatedGroup") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A runner that has only a subtree that a service manager handed over, and runs
// in a leaf of it, has all that root has.
func TestADelegatedGroup(t *testing.T) {
	if !inVM {
		t.Skip("changes the whole host; runs in an emulated machine")
	}
	const nobody = 65534
	root := dir{path: "/sys/fs/cgroup", controllers: []string{CPU, Memory, PIDs}, v2: true}
	subtree, leaf := filepath.Join(root.path, "delegated"), filepath.Join(root.path, "delegated/worker")
	if !root.delegate(root.path) {
		t.Fatal("the root cannot delegate")
	}
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "worker", "worker/cgroup.procs"} {
		if err := os.Chown(filepath.Join(subtree, p), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(leaf)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "Limited|Weight|Holds|Supported|Vanished")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		UseCgroupFD: true, CgroupFD: int(f.Fd()), Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 7 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSupported(t *testing.T) {
	if want := []string{Memory, CPU, PIDs, Weight}; inVM && !sameSet(Supported(), want) {
		t.Errorf("got %q, want %q", Supported(), want)
	}
}

func sameSet(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
