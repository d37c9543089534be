package sandboxcmd

import (
	"golang.org/x/sys/unix"
)

// flushInput forgets what was typed and not read. Where it is no terminal
// there is nothing to forget.
func flushInput(tty int) { _ = unix.IoctlSetInt(tty, unix.TCFLSH, unix.TCIFLUSH) }
