package sandboxcmd

import (
	"golang.org/x/sys/unix"
)

// flushInput drops typed input that was not read. If stdin is no terminal there is
// nothing to drop.
func flushInput(tty int) { _ = unix.IoctlSetInt(tty, unix.TCFLSH, unix.TCIFLUSH) }
