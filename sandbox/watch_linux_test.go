package sandbox

import (
	"fmt"
	"os/exec"
	"testing"
)

// A program that fails has not reached its limit of memory because the process
// that started it had more.
func TestMemoryOfTheStarterIsNotTheJails(t *testing.T) {
	const size = 64 << 20
	taken := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		taken[i] = 1
	}
	cmd := exec.Command("false")
	_ = cmd.Run() // it fails, that is its purpose
	if got := peak(cmd.ProcessState, 0); got < size {
		t.Skipf("this kernel does not count the starter's memory: %d bytes", got)
	}
	w := &watch{memory: &memoryWatch{most: 32 << 20}, inherited: ownPeak()}
	if reached, err := w.end(cmd.ProcessState); len(reached) > 0 || err != nil {
		t.Errorf("reached %v, err %v", reached, err)
	}
	more := ownPeak()<<10 + 128<<20 // tail keeps what it will print
	cmd = exec.Command("sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tail -c %d >/dev/null; exit 1", more+1, more))
	_ = cmd.Run() // as above
	if reached, err := w.end(cmd.ProcessState); len(reached) != 1 || err != nil {
		t.Errorf("a program of the jail took more: reached %v, err %v", reached, err)
	}
	_ = taken[0]
}
