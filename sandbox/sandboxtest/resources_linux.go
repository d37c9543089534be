package sandboxtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

func forkMany(a []string) (string, error) {
	limit, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	var pids []int
	defer func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}()
	for range limit {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
		if err != nil {
			return "", err
		}
		pids = append(pids, pid)
	}
	return "", nil
}

// useMemory takes memory piece by piece. If the kernel gives it no more, it waits
// for the runner to look.
func useMemory(a []string) (string, error) {
	size, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	const piece = 8 << 20
	var last []byte
	for range size / piece {
		b, err := unix.Mmap(-1, 0, piece, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			// Waiting takes memory too, of which the runtime may find none.
			err = errors.Join(err, unix.Munmap(last))
			time.Sleep(15 * time.Second)
			return "", err
		}
		last = b
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	return "", nil
}

// keep writes a file of a size, and waits for the runner to look.
func keep(a []string) (string, error) {
	size, err := strconv.Atoi(a[1])
	if err != nil {
		return "", err
	}
	f, err := os.Create(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for written := 0; written < size; written += len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return "", err
		}
	}
	time.Sleep(15 * time.Second)
	return "", nil
}

// manyFiles makes files, and waits for the runner to look.
func manyFiles(a []string) (string, error) {
	n, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	for i := range n {
		if err := os.WriteFile("f"+strconv.Itoa(i), nil, 0o600); err != nil {
			return "", err
		}
	}
	time.Sleep(15 * time.Second)
	return "", nil
}

// flood writes more than may pass at once.
func flood(a []string) (string, error) {
	size, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	_, err = os.Stderr.Write(make([]byte, size))
	return "", err
}

// fill writes until it fails or the size is reached, and cleans up.
func fill(a []string) (string, error) {
	size, err := strconv.Atoi(a[1])
	if err != nil {
		return "", err
	}
	f, err := os.Create(a[0])
	if err != nil {
		return "", err
	}
	defer os.Remove(a[0])
	chunk := make([]byte, 1<<20)
	for written := 0; written < size; written += len(chunk) {
		if _, err := f.Write(chunk); err != nil {
			return "", err
		}
	}
	return "", f.Close()
}

func sparse(a []string) (string, error) {
	// The signal would end us before the error could be seen.
	ignore := [4]uintptr{1, 0, 0, 0} // SIG_IGN
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(syscall.SIGXFSZ), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
	if errno != 0 {
		return "", errno
	}
	f, err := os.Create("sparse")
	if err != nil {
		return "", err
	}
	defer os.Remove("sparse")
	return "", f.Truncate(1 << 40)
}

// useCPU returns the share of one processor that a busy loop got.
func useCPU([]string) (string, error) {
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		return "", err
	}
	begin := time.Now()
	for time.Since(begin) < time.Second {
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		return "", err
	}
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	if used > 400*time.Millisecond {
		return "unlimited", nil
	}
	return "limited", nil
}

func openMany(a []string) (string, error) {
	limit, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	for range limit {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return "", err
		}
	}
	return "", nil
}

func raiseLimit(a []string) (string, error) {
	resource, err := strconv.Atoi(a[0])
	if err != nil {
		return "", err
	}
	var l unix.Rlimit
	if err := unix.Prlimit(0, resource, nil, &l); err != nil {
		return "", err
	}
	if l.Max == unix.RLIM_INFINITY {
		return "unlimited", nil
	}
	l.Max++
	return "", unix.Prlimit(0, resource, &l, nil)
}

// rawSyscall makes a call with numbers as arguments; "bytes" is a zeroed page.
func rawSyscall(a []string) (string, error) {
	var n [7]uintptr
	page := make([]byte, 4096)
	for i, s := range a {
		if s == "bytes" {
			n[i] = uintptr(unsafe.Pointer(&page[0]))
			continue
		}
		v, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return "", err
		}
		n[i] = uintptr(v)
	}
	if int(n[0]) == unix.SYS_CLONE {
		return "", cloneAndExit(n[1])
	}
	_, _, errno := unix.Syscall6(n[0], n[1], n[2], n[3], n[4], n[5], n[6])
	return "", errno
}

var zero [16]byte

func zeroFamily() uintptr { return uintptr(unsafe.Pointer(&zero[0])) }

// cloneAndExit makes a child that does nothing: it is a copy of one thread of
// a Go program, in which nothing else works.
//
//go:norace
func cloneAndExit(flags uintptr) error {
	pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, flags, 0, 0, 0, 0, 0)
	if errno == 0 && pid == 0 {
		for {
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
	if errno != 0 {
		return errno
	}
	_, err := unix.Wait4(int(pid), nil, 0, nil)
	return err
}

// gateOutcome is what a call by the 32-bit gate comes to in a jail. The kernel may have no
// such gate, as under some hypervisors: then the call ends the program without a jail, too.
var gateOutcome = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "gate")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "gate")
	if err := exectest.WriteFile(program, gateProgram(), 0o755); err != nil {
		return err.Error()
	}
	err = exec.Command(program).Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSEGV {
		return "SIGSEGV"
	}
	return "SIGSYS"
})

// gateProgram is a program that makes one call by the 32-bit gate and would
// then end well.
func gateProgram() []byte {
	code := []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20 (getpid, by its 32-bit number)
		0xcd, 0x80, // int 0x80
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
		0x31, 0xff, // xor edi, edi
		0x0f, 0x05, // syscall
	}
	const base, headers = 0x400000, 64 + 56
	b := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	put := func(size int, values ...uint64) {
		for _, v := range values {
			for i := range size {
				b = append(b, byte(v>>(8*i)))
			}
		}
	}
	put(2, 2, 62)               // executable, x86-64
	put(4, 1)                   // version
	put(8, base+headers, 64, 0) // entry, program headers, sections
	put(4, 0)                   // flags
	put(2, 64, 56, 1, 0, 0, 0)  // sizes and counts
	put(4, 1, 5)                // load, read and execute
	put(8, 0, base, base)       // offset and addresses
	put(8, headers+uint64(len(code)), headers+uint64(len(code)), 0x1000)
	return append(b, code...)
}
