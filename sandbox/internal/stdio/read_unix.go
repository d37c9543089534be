//go:build unix

package stdio

import "syscall"

// readNow reads what there is, or fails with EAGAIN.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
