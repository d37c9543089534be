package initproc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// programVariable makes the test binary the program that runs as a first process.
const programVariable = "INITPROC_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if err := Run(); err != nil {
		fmt.Println(err)
		os.Exit(99)
	}
	if run, ok := programs[os.Getenv(programVariable)]; ok {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"exits": func() int { return 7 },
	"dies": func() int {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		return 0
	},
	// leaves has a process left to the first one, and waits until that has reaped it.
	"leaves": func() int {
		out, err := exec.Command("sh", "-c", "sleep 0.05 >/dev/null & echo $!").Output()
		var pid int
		if _, scanned := fmt.Sscan(string(out), &pid); err != nil || scanned != nil {
			fmt.Println("start a process:", err, scanned)
			return 98
		}
		gone := func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
		if !slowtest.Eventually(10*time.Second, 10*time.Millisecond, gone) {
			fmt.Println("a process that has lost its parent stays as a zombie")
			return 97
		}
		return 0
	},
	// told ends by the signal that the first process is sent.
	"told": func() int {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGTERM)
		fmt.Println("KEY is", os.Getenv("KEY"))
		<-signals
		return 5
	},
}

// first is a program that will be the first process of a namespace.
func first(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount -t proc proc /proc && exec "$0"`, self)
	cmd.Env = append(os.Environ(), programVariable+"="+program, "KEY=planted")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return cmd
}

// skipWithout skips a test where programs cannot have namespaces with a /proc of their own.
func skipWithout(t *testing.T) {
	t.Helper()
	cmd := first(t, "exits")
	cmd.Args = []string{"sh", "-c", "mount -t proc proc /proc"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("no namespace with its own /proc: %v %s", err, out)
	}
}

func TestAFirstProcessEndsAsItsChild(t *testing.T) {
	t.Parallel()
	skipWithout(t)
	for program, want := range map[string]int{"exits": 7, "dies": 128 + 9, "leaves": 0} {
		cmd := first(t, program)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		_ = cmd.Run() // the exit code is looked at
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%s: exit code %d, want %d\n%s", program, got, want, &said)
		}
	}
}

// started reports whether a first process has started its child, and itself again.
func started(proc string) bool {
	environ, err := os.ReadFile(proc + "environ")
	return err == nil && strings.HasPrefix(string(environ), childVariable+"=")
}

// listens reports whether a process is told of signals. Programs in Go catch this one only
// where they ask for it.
func listens(proc string) bool {
	status, err := os.ReadFile(proc + "status")
	_, rest, _ := strings.Cut(string(status), "SigCgt:")
	caught, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mask, wrong := strconv.ParseUint(caught, 16, 64)
	return err == nil && wrong == nil && mask&(1<<(syscall.SIGTSTP-1)) != 0
}

func TestAFirstProcessPassesSignalsOnAndKeepsNoKeys(t *testing.T) {
	t.Parallel()
	skipWithout(t)
	cmd := first(t, "told")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "KEY is planted\n" {
		t.Errorf("the child says %q, %v", line, err)
	}
	proc := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	if !slowtest.Eventually(10*time.Second, 10*time.Millisecond, func() bool { return started(proc) && listens(proc) }) {
		t.Error("the first process does not listen")
	}
	if environ, err := os.ReadFile(proc + "environ"); err != nil || strings.Contains(string(environ), "planted") {
		t.Errorf("the first process has an environment of %d bytes, %v", len(environ), err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the exit code is looked at
	if got := cmd.ProcessState.ExitCode(); got != 5 {
		t.Errorf("exit code %d after a signal, want that of the child, 5", got)
	}
}
