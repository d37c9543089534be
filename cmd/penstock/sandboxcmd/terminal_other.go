//go:build !linux

package sandboxcmd

import (
	"golang.org/x/sys/unix"
)

// flushInput forgets what was typed and not read.
func flushInput(tty int) {
	const read = 1 // FREAD
	_ = unix.IoctlSetPointerInt(tty, unix.TIOCFLUSH, read)
}
