//go:build unix

package natsd

import "golang.org/x/sys/unix"

// diskSpace returns what is free for this user, and the size of the disk.
func diskSpace(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	size := int64(st.Bsize)
	return int64(st.Bavail) * size, int64(st.Blocks) * size, nil
}
