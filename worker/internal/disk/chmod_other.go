//go:build !linux

package disk

import "golang.org/x/sys/unix"

// unlockAt takes away flags that keep an entry from being removed, where that
// is known how.
func unlockAt(int, string) error { return unix.EPERM }

// ChmodAt changes the mode of an entry, and never through a link.
func ChmodAt(parent int, name string, mode uint32) error {
	return unix.Fchmodat(parent, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
