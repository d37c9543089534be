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

// startReaper starts one for a starter that has so many jails.
func startReaper(t *testing.T, identity string, jails int) <-chan struct{} {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pipe[1]) })
	if _, err := unix.Write(pipe[1], make([]byte, jails)); err != nil {
		t.Fatal(err)
	}
	pid, err := jailinit.StartReaper(identity, pipe[0])
	unix.Close(pipe[0])
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
	reaped := startReaper(t, dead, 1)
	startReaper(t, token.Identity(living.Process.Pid), 1)

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
	startReaper(t, dead, 1) // as when a starter is killed before its reaper looks for the first time
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
	reaped := startReaper(t, dead, 1)
	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, reaped, "the reaper of a jail that is frozen")
	write("freezer.state", "THAWED")
	gone(t, endOf(stranded), "the jail that was frozen")
}

// After the last jail of a starter there is nothing to look for.
func TestTheReaperBelievesThatAllJailsHaveEnded(t *testing.T) {
	dying := waiting(t, 0)
	dead := token.Identity(dying.Process.Pid)
	left := waiting(t, syscall.CLONE_NEWPID, jailinit.Mark+"label_"+dead+"-7")
	reaped := startReaper(t, dead, 0) // the other end of its pipe stays open
	if err := dying.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone(t, reaped, "the reaper of a starter without jails")
	if token.State(left.Process.Pid) == "Z" {
		t.Error("it has looked for jails")
	}
}

func noted(t *testing.T) int {
	t.Helper()
	n, err := unix.IoctlGetInt(reaper.jails[0], unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestJailsAreNotedUntilTheyEnd(t *testing.T) {
	var jails []func()
	for range 2 {
		forget, err := needReaper()
		if err != nil {
			t.Fatal(err)
		}
		jails = append(jails, forget)
	}
	if n := noted(t); n != 2 {
		t.Errorf("%d of two jails are noted", n)
	}
	jails[0]()
	jails[0]() // as when a start fails after all
	if n := noted(t); n != 1 {
		t.Errorf("%d of one jail are noted", n)
	}
	jails[1]()
	if n := noted(t); n != 0 {
		t.Errorf("%d are noted at the end", n)
	}
}

func TestAKilledReaperIsReplaced(t *testing.T) {
	need := func() error {
		forget, err := needReaper()
		if err == nil {
			forget()
		}
		return err
	}
	if err := need(); err != nil {
		t.Fatal(err)
	}
	first := reaper.pid
	if err := need(); err != nil || reaper.pid != first {
		t.Errorf("reaper %d, then %d, err %v", first, reaper.pid, err)
	}
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(slowtest.Limit(10 * time.Second)); reaper.pid == first; time.Sleep(time.Millisecond) {
		if err := need(); err != nil || time.Now().After(deadline) {
			t.Fatalf("no other reaper: %v", err)
		}
	}
}
