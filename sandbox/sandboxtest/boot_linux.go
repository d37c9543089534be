package sandboxtest

import (
	"bytes"
	"context"
	_ "embed" // the container's first process
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

//go:embed testdata/init.sh
var containerInit []byte

// boots counts containers: each has a name of its own, under which nspawn keeps and removes
// what is the container's.
var boots atomic.Int64

// Boot boots a container with systemd as its first process, for the tests of a host
// that was not booted with it. The container executes the shell script run, which
// finds the running test binary at /penstock.test and the directory out at /out. Boot
// returns when the container has ended, and has left nothing. It skips the test where
// there is no such container, or fails it where PENSTOCK_TEST_REQUIRE names nspawn.
func Boot(t *testing.T, out string, run []byte) {
	t.Helper()
	root := ContainerRoot(t)
	for name, content := range map[string][]byte{"init.sh": containerInit, "run.sh": run} {
		if err := os.WriteFile(filepath.Join(out, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe",
		fmt.Sprintf("--machine=penstock-%d-%d", os.Getpid(), boots.Add(1)), "--directory="+root, "--volatile=overlay", "--private-network",
		"--capability=all", "--bind="+out+":/out", "--bind-ro="+self+":/penstock.test",
		"/out/init.sh", "systemd.run=/out/run.sh", "systemd.show_status=no")
	// Attempts have to be answered by the kernel, not by nspawn's own filter.
	cmd.Env = append(os.Environ(), "SYSTEMD_SECCOMP=0")
	var console bytes.Buffer
	cmd.Stdout, cmd.Stderr = &console, &console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error {
		// The second ends it at once; killed, it would leave what it started.
		err := cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Second)
		return errors.Join(err, cmd.Process.Signal(syscall.SIGTERM))
	}
	cmd.WaitDelay = 10 * time.Second
	// The signal comes when the thread ends that started the container, and threads of jails
	// that other tests start end with these.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		t.Errorf("systemd-nspawn: %v\n%s", err, console.String())
	}
}

// ContainerRoot returns the root of the container that Boot boots, which sandbox/systemd/testdata/root.sh makes.
func ContainerRoot(t *testing.T) string {
	t.Helper()
	report := t.Skipf
	if slices.Contains(strings.Split(os.Getenv("PENSTOCK_TEST_REQUIRE"), ","), "nspawn") {
		report = t.Fatalf
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil || os.Geteuid() != 0 {
		report("nspawn: needs root and the package systemd-container: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		report("nspawn: %v", err)
	}
	root := filepath.Join(cache, "penstock-ci", "bookworm")
	if _, err := os.Stat(filepath.Join(root, "complete")); err != nil {
		report("nspawn: there is no system to boot; make it with sandbox/systemd/testdata/root.sh %s", root)
	}
	return root
}
