package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What asking the user's manager makes possible, a child of the test does: a
// process that is moved stays moved.
const asks = "PENSTOCK_TEST_DELEGATE"

func delegateFirst() {
	if os.Getenv(asks) == "" {
		return
	}
	moved, err := Delegate(context.Background())
	again, errAgain := Delegate(context.Background())
	if err := errors.Join(err, errAgain); err != nil || !moved || again {
		fmt.Println("delegate: moved", moved, again, "err", err)
		os.Exit(3)
	}
}

// requireManager skips where root, or this user already, can make groups, and
// where there is no manager to ask for them.
func requireManager(t *testing.T) {
	t.Helper()
	report := t.Skipf
	if os.Getenv("PENSTOCK_TEST_VM") == "systemd" {
		report = t.Fatalf
	}
	if len(Supported()) > 0 {
		report("this user can make control groups: %q", Supported())
	}
	if _, err := unified(); err != nil {
		report("%v", err)
	}
	if err := inSession(); err != nil {
		report("%v", err)
	}
	if _, err := manager(t.Context()); err != nil {
		report("%v", err)
	}
}

// A user who can write no control group has, after asking, all that root has.
func TestDelegatedLimits(t *testing.T) {
	requireManager(t)
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", "Limited|Weight|Holds")
	cmd.Env = append(os.Environ(), asks+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 5 {
		t.Errorf("%v\n%s", err, out)
	}
	if len(Supported()) > 0 {
		t.Error("this process has changed")
	}
}

// Nothing is left of a runner that is killed with a group that has processes,
// once these have ended.
func TestTheScopeEndsWithItsLast(t *testing.T) {
	requireManager(t)
	cmd := exec.Command("/proc/self/exe", "-test.run", "TestHoldAGroup")
	cmd.Env = append(os.Environ(), asks+"=hold")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	group, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	group = strings.TrimSpace(group)
	scope := filepath.Dir(filepath.Dir(group))
	if base := filepath.Base(scope); !strings.HasPrefix(base, "penstock-") || !strings.HasSuffix(base, ".scope") {
		t.Fatalf("the group is %s", group)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	pids := dir{path: group}.processes()
	if len(pids) == 0 {
		t.Error("the group's process died, or was never there")
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(scope); errors.Is(err, os.ErrNotExist) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still there", scope)
		}
	}
}

// TestHoldAGroup is what is killed.
func TestHoldAGroup(t *testing.T) {
	if os.Getenv(asks) != "hold" {
		t.Skip("part of another test")
	}
	g, err := New("held_1", Limits{PIDs: 20})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	runtime.LockOSThread()
	_, err = g.Start(cmd)
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = os.Stdout.WriteString(g.dirs[0].path + "\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// Where no manager answers, the error says why, and what to do.
func TestNobodyToAsk(t *testing.T) {
	if os.Geteuid() == 0 {
		if moved, err := Delegate(t.Context()); len(Supported()) >= 4 && (moved || err != nil) {
			t.Errorf("with groups of one's own: moved %v, err %v", moved, err)
		}
	}
	if _, err := manager(t.Context()); err != nil && !strings.Contains(err.Error(), "enable-linger") {
		t.Errorf("got %v", err)
	}
	if _, err := unified(); err != nil && !strings.Contains(err.Error(), "version 1") {
		t.Errorf("got %v", err)
	}
}
