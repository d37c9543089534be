package seatbelt

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canonical returns the path by which the kernel knows a file: without links,
// and in the case of its directory. A rule in another case would not match.
func canonical(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	buf := make([]byte, unix.PathMax)
	if _, _, errno := unix.Syscall(unix.SYS_FCNTL, f.Fd(), unix.F_GETPATH, uintptr(unsafe.Pointer(&buf[0]))); errno != 0 {
		return "", errno
	}
	name, _, _ := bytes.Cut(buf, []byte{0})
	return string(name), nil
}
