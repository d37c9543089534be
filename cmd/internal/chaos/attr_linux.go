package chaos

import (
	"fmt"
	"syscall"
)

// apart starts a program in a session of its own: a terminal's interrupt is
// for who drains it. It ends with this program, also when that is killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func mount(dir string, bytes int64) (unmount func() error, err error) {
	if err := syscall.Mount(diskSource, dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return nil, err
	}
	// Detached, because a jail that is just being made may still see it.
	return func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}
