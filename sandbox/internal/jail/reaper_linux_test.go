package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-run/penstock/sandbox/internal/token"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/slowtest"
	"golang.org/x/sys/unix"
)

// waiting is a process that waits for a word, as bubblewrap's does in a jail
// that is not finished.
func waiting(t *testing.T, flags uintptr, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", "read word"}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags != 0 && os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := cmd.Start(); err != nil {
		if flags != 0 {
			t.Skipf("no process namespace can be made here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func startReaper(t *testing.T, identity string) <-chan struct{} {
	t.Helper()
	pid, err := jailinit.StartReaper(identity)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = unix.Wait4(pid, nil, 0, nil)
	}()
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	return done
}

func gone(t *testing.T, ended <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(slowtest.Limit(10 * time.Second)):
		t.Fatalf("%s still runs", what)
	}
}

func endOf(c *exec.Cmd) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // it was killed
	}()
	return ended
}

// What kills bubblewrap at the wrong moment leaves the first process of a jail
// waiting for ever. Supervisors that are no jail of their own have more to do
// when their starter dies, and end by themselves.
func TestTheReaperEndsWhatADeadStarterLeft(t *testing.T) {
	dying, living := waiting(t, 0), waiting(t, 0)
	dead, named := token.Identity(dying.Process.Pid), func(starter string) string { return jailinit.Mark + "label_" + starter + "-7" }
	stranded := waiting(t, syscall.CLONE_NEWPID, named(dead))
	others := waiting(t, syscall.CLONE_NEWPID, named(token.Identity(living.Process.Pid)))
	supervisor := waiting(t, 0, named(dead))
	reaped := startReaper(t, dead)
	startReaper(t, token.Identity(living.Process.Pid))

	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, endOf(stranded), "the jail that was not finished")
	gone(t, reaped, "the reaper of a dead starter")
	for what, c := range map[string]*exec.Cmd{"the jail of a living starter": others, "a supervisor": supervisor} {
		if token.State(c.Process.Pid) == "Z" {
			t.Errorf("%s was killed", what)
		}
	}
	late := waiting(t, syscall.CLONE_NEWPID, named(dead))
	startReaper(t, dead) // as when a starter is killed before its reaper looks for the first time
	gone(t, endOf(late), "what was left before the reaper began")
}

// A frozen process keeps the signal and ends when it is thawed. The reaper does
// not look at it again and again meanwhile.
func TestTheReaperDoesNotWaitForFrozenJails(t *testing.T) {
	group := filepath.Join("/sys/fs/cgroup/freezer", fmt.Sprintf("penstock-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("no group of processes can be frozen here, as the first version of control groups can: %v", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(group, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(slowtest.Limit(10 * time.Second)); unix.Rmdir(group) != nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s cannot be removed", group)
				break
			}
		}
	})
	dying := waiting(t, 0)
	dead := token.Identity(dying.Process.Pid)
	stranded := waiting(t, syscall.CLONE_NEWPID, jailinit.Mark+"label_"+dead+"-7")
	write("cgroup.procs", strconv.Itoa(stranded.Process.Pid))
	write("freezer.state", "FROZEN")
	t.Cleanup(func() { write("freezer.state", "THAWED") }) // before the process is waited for
	reaped := startReaper(t, dead)
	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, reaped, "the reaper of a jail that is frozen")
	write("freezer.state", "THAWED")
	gone(t, endOf(stranded), "the jail that was frozen")
}

func TestAKilledReaperIsReplaced(t *testing.T) {
	if err := needReaper(); err != nil {
		t.Fatal(err)
	}
	first := reaper.pid
	if err := needReaper(); err != nil || reaper.pid != first {
		t.Errorf("reaper %d, then %d, err %v", first, reaper.pid, err)
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(slowtest.Limit(10 * time.Second)); reaper.pid == first; time.Sleep(time.Millisecond) {
		if err := needReaper(); err != nil || time.Now().After(deadline) {
			t.Fatalf("no other reaper: %v", err)
		}
	}
}
