//go:build !linux

package workspace

import "golang.org/x/sys/unix"

// chmodAt changes the mode of an entry, and never through a link.
func chmodAt(parent int, name string, mode uint32) error {
	return unix.Fchmodat(parent, name, mode, unix.AT_SYMLINK_NOFOLLOW)
}
