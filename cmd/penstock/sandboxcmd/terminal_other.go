//go:build !linux

package sandboxcmd

import (
	"golang.org/x/sys/unix"
)

// flushInput drops typed input that was not read.
func flushInput(tty int) {
	const read = 1 // FREAD
	_ = unix.IoctlSetPointerInt(tty, unix.TIOCFLUSH, read)
}
