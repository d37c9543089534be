package seccomp

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filtered runs f on a thread with the filter, which ends with it.
func filtered(t *testing.T, o Options, f func()) {
	t.Helper()
	program, err := Filter(Native(), o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			code := unix.SockFprog{
				Len:    uint16(len(program) / int(unsafe.Sizeof(unix.SockFilter{}))),
				Filter: (*unix.SockFilter)(unsafe.Pointer(unsafe.SliceData(program))),
			}
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&code)), 0, 0)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func call(number int, args ...uint64) syscall.Errno {
	var a [6]uintptr
	for i, v := range args {
		a[i] = uintptr(v)
	}
	_, _, errno := syscall.RawSyscall6(uintptr(number), a[0], a[1], a[2], a[3], a[4], a[5])
	return errno
}

// The kernel itself answers as the interpreter of these tests does, on the
// processor that they run on.
func TestTheKernelAnswers(t *testing.T) {
	for _, o := range []Options{{}, {Namespaces: true}, {Trace: true}, {NoUnix: true}} {
		filtered(t, o, func() {
			if got := call(numbers["kcmp"].of(Native())); got != syscall.EPERM {
				t.Errorf("there is no filter: got %v", got) // what follows would happen
				return
			}
			for _, c := range answers {
				n := numbers[c.call].of(Native())
				if c.o != o || n < 0 || c.want == allow { // what is allowed would happen
					continue
				}
				if got := call(n, c.args...); got != syscall.Errno(c.want&0xffff) {
					t.Errorf("%s%#x %+v: got %v, want %v", c.call, c.args, o, got, syscall.Errno(c.want&0xffff))
				}
			}
			names := slices.Clone(refused)
			if !o.Trace {
				names = append(names, tracing...)
			}
			for _, name := range names {
				// Nothing can be done with such arguments where no filter is.
				const none = ^uint64(0)
				if n := numbers[name].of(Native()); n >= 0 {
					if got := call(n, none, none, none, none, none, none); got != syscall.EPERM {
						t.Errorf("%s %+v: got %v", name, o, got)
					}
				}
			}
			if errno := call(syscall.SYS_GETPPID); errno != 0 {
				t.Errorf("an ordinary call %+v: got %v", o, errno)
			}
		})
	}
}
