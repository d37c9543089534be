package stdio

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Unread reports whether output waits for a reader.
func (p *Pipes) Unread() bool {
	return slices.ContainsFunc(p.outputs, func(o *output) bool { return pending(o.from) > 0 })
}

// pending returns how many bytes of a pipe wait to be read.
func pending(f *os.File) int {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0
	if e := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }); e != nil || err != nil {
		return 0
	}
	return n
}
