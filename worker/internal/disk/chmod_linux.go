package disk

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Flags of a file that keep everybody from changing or removing it.
const locked = 0x10 | 0x20 // immutable and append-only, as lsattr shows them

// unlockAt takes the flags away that chattr sets and that keep an entry from
// being removed. Who may not set them may not take them away.
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
		return unix.EPERM // it is something else
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags&^locked))
}

// ChmodAt changes the mode of an entry, and never through a link: the path of
// a descriptor that was opened without following one leads to that entry.
func ChmodAt(parent int, name string, mode uint32) error {
	fd, err := unix.Openat(parent, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), mode, 0)
}
