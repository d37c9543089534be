//go:build !linux

package disk

import "golang.org/x/sys/unix"

// unlockAt clears flags that prevent the removal of an entry, on systems where it can.
func unlockAt(int, string) error { return unix.EPERM }

// ChmodAt changes the mode of an entry without following a link.
func ChmodAt(parent int, name string, mode uint32) error {
	return unix.Fchmodat(parent, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
