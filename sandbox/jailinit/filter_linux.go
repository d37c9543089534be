package jailinit

import (
	"syscall"
	"unsafe"
)

// filterCalls puts a filter of system calls on this thread and all that it
// will execute, where the mechanism does not.
func filterCalls(filter []byte) error {
	if err := prctl(prSetNoNewPrivs, 1, 0); err != nil {
		return err
	}
	const instruction = 8
	if len(filter)%instruction != 0 {
		return syscall.EINVAL
	}
	program := syscall.SockFprog{
		Len: uint16(len(filter) / instruction), Filter: (*syscall.SockFilter)(unsafe.Pointer(unsafe.SliceData(filter))),
	}
	_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, prSetSeccomp, seccompModeFilter, uintptr(unsafe.Pointer(&program)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
