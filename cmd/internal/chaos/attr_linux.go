package chaos

import (
	"fmt"
	"syscall"
)

// apart starts a program in a session of its own, because a terminal's interrupt is for
// the caller, which drains it. It ends with this program, even if this program is
// killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

func mount(dir string, bytes int64) (unmount func() error, err error) {
	if err := syscall.Mount(diskSource, dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", bytes)); err != nil {
		return nil, err
	}
	// Detached, because a jail that is starting may still see the disk.
	return func() error { return syscall.Unmount(dir, syscall.MNT_DETACH) }, nil
}
