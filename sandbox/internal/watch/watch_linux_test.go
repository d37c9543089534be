package watch

import (
	"fmt"
	"os/exec"
	"testing"
	"time"
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
	w := &Watch{memory: &memoryWatch{most: 32 << 20}, inherited: ownPeak()}
	if reached, err := w.End(cmd.ProcessState); len(reached) > 0 || err != nil {
		t.Errorf("reached %v, err %v", reached, err)
	}
	more := ownPeak()<<10 + 128<<20 // tail keeps what it will print
	cmd = exec.Command("sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tail -c %d >/dev/null; exit 1", more+1, more))
	_ = cmd.Run() // as above
	if reached, err := w.End(cmd.ProcessState); len(reached) != 1 || err != nil {
		t.Errorf("a program of the jail took more: reached %v, err %v", reached, err)
	}
	_ = taken[0]
}

// What a look waits for puts off no other look: on a busy host it would wait so long
// that a program reaches its limit unseen.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	if took := processorTime(func() { time.Sleep(100 * time.Millisecond) }); took > 50*time.Millisecond {
		t.Errorf("a wait of 100ms took %s of the processor", took)
	}
	computed := processorTime(func() {
		for begun := threadTime(); threadTime()-begun < 20*time.Millisecond; {
		}
	})
	if computed < 20*time.Millisecond {
		t.Errorf("20ms of computing took %s of the processor", computed)
	}
}
