package systemd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestUnderItsOwnSystemd boots a container with systemd as its first process
// and makes the other tests there: as root, and as a user with a manager of his
// own. Where this machine was booted with systemd they run on it directly.
func TestUnderItsOwnSystemd(t *testing.T) {
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		t.Skip("this machine was booted with systemd: the tests run on it")
	}
	root := requireNspawn(t)
	out := t.TempDir()
	boot(t, root, out)
	for _, who := range []string{"root", "tester"} {
		said, err := os.ReadFile(filepath.Join(out, who+".txt"))
		if err != nil {
			t.Error(err)
		}
		t.Run(who, func(t *testing.T) { replay(t, string(said)) })
	}
	if _, err := os.Stat(filepath.Join(out, "complete")); err != nil {
		log, _ := os.ReadFile(filepath.Join(out, "log"))
		t.Errorf("the tests in the container did not end: %v\n%s", err, log)
	}
}

// requireNspawn returns the container's root, which testdata/root.sh makes.
func requireNspawn(t *testing.T) string {
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

// boot returns when the container has ended, and has left nothing.
func boot(t *testing.T, root, out string) {
	t.Helper()
	for _, name := range []string{"init.sh", "run.sh"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(out, name), b, 0o755)
		}
		if err != nil {
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
		fmt.Sprintf("--machine=penstock-%d", os.Getpid()), "--directory="+root, "--volatile=overlay", "--private-network",
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
	if err := cmd.Run(); err != nil {
		t.Errorf("systemd-nspawn: %v\n%s", err, console.String())
	}
}

var result = regexp.MustCompile(`^( *)--- (PASS|FAIL|SKIP): (\S+)`)

// replay makes a test of each that ran in the container. Programs that the
// container lacks are no news.
func replay(t *testing.T, said string) {
	t.Helper()
	found := 0
	for line := range strings.Lines(said) {
		m := result.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		found++
		if m[2] == "FAIL" {
			t.Run(m[3], func(t *testing.T) { t.Error("it failed in the container") })
		}
	}
	if found < 200 || t.Failed() || !strings.HasSuffix(strings.TrimSpace(said), "PASS") {
		t.Errorf("%d results; all that was said:\n%s", found, said)
	}
	for skipped, why := range skips(said) {
		t.Logf("not in the container: %s: %s", skipped, why)
	}
}

var skip = regexp.MustCompile(`(?m)^\s+(\S+\.go:\d+: .*)\n(?:=== .*\n)*\s*--- SKIP: (\S+)`)

func skips(said string) map[string]string {
	m := map[string]string{}
	for _, s := range skip.FindAllStringSubmatch(said, -1) {
		m[s[2]] = s[1]
	}
	return m
}
