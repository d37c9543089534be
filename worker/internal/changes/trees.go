package changes

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// openTrees opens a directory in all of the template's trees that show through there,
// the uppermost first.
func openTrees(trees []string, dir string) (fds []int, err error) {
	shut := func(fds []int) {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	for _, tree := range trees {
		fd, err := disk.OpenDir(unix.AT_FDCWD, tree)
		if err != nil {
			shut(fds)
			return nil, err
		}
		fds = append(fds, fd)
	}
	for name := range strings.SplitSeq(dir, "/") {
		if dir == "" {
			break
		}
		next, err := descend(fds, name)
		shut(fds)
		if fds = next; err != nil {
			shut(fds)
			return nil, err
		}
	}
	return fds, nil
}

// descend opens the directory name in directories that lie above each other, down to
// the first entry that hides the rest.
func descend(fds []int, name string) (next []int, err error) {
	for _, parent := range fds {
		fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return next, err
		}
		next = append(next, fd)
		if opaque, _, err := marks(fd); opaque || err != nil {
			return next, err
		}
	}
	return next, nil
}
