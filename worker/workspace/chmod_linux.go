package workspace

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// chmodAt changes the mode of an entry, and never through a link: the path of
// a descriptor that was opened without following one leads to that entry.
func chmodAt(parent int, name string, mode uint32) error {
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode, 0)
}
