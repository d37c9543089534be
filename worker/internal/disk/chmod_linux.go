package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Flags of a file that prevent its change and removal, for every user.
const locked = 0x10 | 0x20 // immutable and append-only, as lsattr shows them

// unlockAt clears the flags of chattr that prevent the removal of an entry. A user who
// may not set them may not clear them.
func unlockAt(parent int, name string) error {
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
	if err != nil {
		return err
	}
	if flags&locked == 0 {
		return unix.EPERM // another kind of entry
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^locked))
}

// ChmodAt changes the mode of an entry without following a link: it uses the path of a
// descriptor that was opened without following one.
func ChmodAt(parent int, name string, mode uint32) error {
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode, 0)
}
