package disk

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsFull reports whether err says that the disk, or a quota, is full.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// BlameFull adds to an error that the disk is full, if it is. Some git commands do not
// say why they could not write a file.
func BlameFull(dir string, err error) error {
	if err == nil || IsFull(err) {
		return err
	}
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return err
	}
	if uint64(st.Bavail)*uint64(st.Bsize) < 64<<10 || st.Files > 0 && st.Ffree == 0 {
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	}
	return err
}
