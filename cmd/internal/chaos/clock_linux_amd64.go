package chaos

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// A wallClock is the wall clock of one program, which can be moved while the program
// runs. A program reads the time by a function that the kernel maps into it. Before its
// first instruction that function is replaced by one that asks the kernel and adds an
// offset stored beside it. Nothing else on the host, and no program that it starts,
// sees another time. Its monotonic clock does not change.
type wallClock struct {
	mem  *os.File // of the program
	slot int64    // address of the offset
}

// startTimed starts a program with its own clock.
func startTimed(cmd *exec.Cmd) (_ *wallClock, err error) {
	// The tracer of a program is a thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr.Ptrace = true
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("give a program a clock of its own: %w", err), cmd.Process.Kill())
			_ = cmd.Wait() // killed
		}
	}()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || !status.Stopped() {
		return nil, fmt.Errorf("it did not stop at its first instruction: %v, %w", status, err)
	}
	c, err := replaceClock(pid)
	if err != nil {
		return nil, err
	}
	return c, syscall.PtraceDetach(pid)
}

// asks is the function: the kernel's clock_gettime; for the wall clock (0) it adds the
// offset at its end to the seconds.
var asks = []byte{
	0xb8, 0xe4, 0, 0, 0, // mov eax, 228
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne to the ret
	0x4c, 0x8b, 0x1d, 0, 0, 0, 0, // mov r11, [rip + the way to the number]
	0x4c, 0x01, 0x1e, // add [rsi], r11
	0xc3, // ret
}

const wayAt, wayFrom = 14, 18 // in asks

func replaceClock(pid int) (*wallClock, error) {
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	at, size, err := clockFunction(pid, mem)
	slot := (at + int64(len(asks)) + 7) &^ 7
	if err == nil && slot+8 > at+size {
		err = errors.New("the kernel's function is too short to be replaced")
	}
	if err == nil {
		code := bytes.Clone(asks)
		binary.LittleEndian.PutUint32(code[wayAt:], uint32(slot-at-wayFrom))
		_, err = mem.WriteAt(code, at)
	}
	c := &wallClock{mem, slot}
	if err == nil {
		err = c.move(0)
	}
	if err != nil {
		return nil, errors.Join(err, mem.Close())
	}
	return c, nil
}

// clockFunction returns the address of the function that returns a program's time.
func clockFunction(pid int, mem *os.File) (at, size int64, err error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var from, to int64
		if !strings.HasSuffix(lines.Text(), "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &from, &to); err != nil {
			return 0, 0, err
		}
		image := make([]byte, to-from)
		if _, err := mem.ReadAt(image, from); err != nil {
			return 0, 0, err
		}
		file, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			return 0, 0, err
		}
		symbols, err := file.DynamicSymbols()
		if err != nil {
			return 0, 0, err
		}
		for _, s := range symbols {
			if s.Name == "__vdso_clock_gettime" {
				return from + int64(s.Value), int64(s.Size), nil
			}
		}
	}
	return 0, 0, errors.New("the kernel maps no function that tells the time")
}

// move sets the clock to the true time plus an offset.
func (c *wallClock) move(by time.Duration) error {
	_, err := c.mem.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(int64(by/time.Second))), c.slot)
	return err
}

func (c *wallClock) close() { _ = c.mem.Close() } // it was read and written unbuffered
