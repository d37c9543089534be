package stdio

import (
	"os"

	"golang.org/x/sys/unix"
)

// enlarge makes a pipe hold more than the 64 KiB that it has, if the system lets us. Some
// programs never wait for a pipe that is full: what does not go in is lost, and they end
// (Gemini CLI, opencode). A user who is not root may have pipes of 64 MiB together, and
// gets tiny ones beyond that (pipe(7), pipe-user-pages-soft), so takes less.
func enlarge(pipe *os.File) {
	size := 256 << 10
	if os.Geteuid() == 0 {
		size = 1 << 20
	}
	if raw, err := pipe.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, size) })
	}
}
