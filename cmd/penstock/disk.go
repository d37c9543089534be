package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// freeBytes is how much an ordinary user may still write below dir.
func freeBytes(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}
