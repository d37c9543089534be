//go:build unix

package exectest

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// Pause stops a child of this process, which goes on with SIGCONT, and returns when it has
// stopped: after the signal it runs on until one of its threads gets a processor, which
// takes a while on a busy machine. The test ends where the child has ended instead.
func Pause(tb testing.TB, child *os.Process) {
	tb.Helper()
	if err := child.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(child.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		tb.Fatalf("process %d has not stopped: status %v, err %v", child.Pid, status, err)
	}
}
