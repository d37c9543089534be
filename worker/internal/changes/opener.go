package changes

import (
	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// An opener opens files that an agent wrote, and never follows a link.
type opener struct {
	chmod bool // the files are ours: make unreadable ones readable
}

// top opens the directory itself. A user's may be a link, ours never is.
func (o opener) top(root string) (int, error) {
	if o.chmod {
		return disk.OpenDir(unix.AT_FDCWD, root)
	}
	return unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// open opens one name without following a link. It does not wait for the other end of a
// FIFO.
func (o opener) open(parent int, name string, more int) (int, error) {
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC | more
	fd, err := unix.Openat(parent, name, flags, 0)
	if err == unix.EACCES && o.chmod {
		if err := disk.ChmodAt(parent, name, 0o700); err != nil {
			return -1, err
		}
		return unix.Openat(parent, name, flags, 0)
	}
	return fd, err
}
