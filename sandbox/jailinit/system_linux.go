package jailinit

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// What package syscall has not. golang.org/x/sys/unix has it, and package
// reflect below it, which most of a large program waits for, so that this
// package would wait for most of the program. Numbers are those of every
// architecture unless a table says otherwise.
const (
	sysPidfdSendSignal    = 424
	sysPidfdOpen          = 434
	sysCloseRange         = 436
	sysLandlockCreate     = 444
	sysLandlockAddRule    = 445
	sysLandlockRestrict   = 446
	closeRangeCloexec     = 4
	prSetSeccomp          = 22
	seccompModeFilter     = 2
	prSetChildSubreaper   = 36
	prSetNoNewPrivs       = 38
	prCapAmbient          = 47
	prCapAmbientClearAll  = 4
	capSysAdmin           = 21
	capabilityVersion3    = 0x20080522
	rlimitNproc           = 6
	pollIn                = 0x1
	pollOut               = 0x4
	pollRdhup             = 0x2000
	ioctlPeer             = 0x5441     // TIOCGPTPEER
	ioctlUnlock           = 0x40045431 // TIOCSPTLCK
	inputUTF8             = 0x4000     // IUTF8
	openPath              = 0x200000
	statReadOnly          = 1
	tmpfsMagic            = 0x01021994
	executable            = 1
	memfdCloexec          = 1
	landlockVersionFlag   = 1
	landlockPathBeneath   = 1
	landlockScopeAbstract = 1
	landlockScopeSignal   = 2
	landlockFsExecute     = 1 << 0
	landlockFsWriteFile   = 1 << 1
	landlockFsReadFile    = 1 << 2
	landlockFsReadDir     = 1 << 3
	landlockFsMakeSym     = 1 << 12
	landlockFsRefer       = 1 << 13
	landlockFsTruncate    = 1 << 14
)

func prctl(option, arg2, arg3 uintptr) error {
	if _, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, option, arg2, arg3, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// A pollFD is struct pollfd.
type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

// poll waits until something happens, or for a time unless that is 0, and returns
// with how many descriptors it has.
func poll(fds []pollFD, limit time.Duration) (int, error) {
	var timeout *syscall.Timespec
	if limit > 0 {
		t := syscall.NsecToTimespec(limit.Nanoseconds())
		timeout = &t
	}
	n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))),
		uintptr(len(fds)), uintptr(unsafe.Pointer(timeout)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// memfd makes a file in memory that an exec closes.
func memfd() (int, error) {
	number := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	if number == 0 {
		return -1, syscall.ENOSYS
	}
	name, err := syscall.BytePtrFromString("penstock")
	if err != nil {
		return -1, err
	}
	fd, _, errno := syscall.Syscall(number, uintptr(unsafe.Pointer(name)), memfdCloexec, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// dropCapabilities gives every capability of this thread up.
func dropCapabilities() error {
	header := struct {
		version uint32
		pid     int32
	}{version: capabilityVersion3}
	var none [2]struct{ effective, permitted, inheritable uint32 }
	_, _, errno := syscall.Syscall(syscall.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// failed says what was attempted when err came up; what fmt.Errorf would do,
// which waits for package reflect.
func failed(attempted string, err error) error { return &failure{attempted, err} }

type failure struct {
	attempted string
	err       error
}

func (f *failure) Error() string { return f.attempted + ": " + f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
