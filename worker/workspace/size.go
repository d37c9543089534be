package workspace

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Size measures what the workspace takes on the disk of the host, beside what
// it shares with others: the blocks of its files, and how many inodes there
// are. An agent may be at work: what comes and goes meanwhile is counted or
// not. A tree that is deeper or larger than what may be collected is not
// counted to its end.
func (w *Workspace) Size(ctx context.Context) (bytes, inodes int64) {
	m := &footprint{limits: w.spaces.cfg.Limits, seen: map[uint64]bool{}}
	m.directory(ctx, place{fd: unix.AT_FDCWD, path: w.home})
	if w.linked != nil {
		m.directory(ctx, place{fd: unix.AT_FDCWD, path: w.dir})
	}
	return m.bytes, m.inodes
}

type footprint struct {
	limits        Limits
	seen          map[uint64]bool // files with several names
	bytes, inodes int64
}

func (m *footprint) add(st *unix.Stat_t) {
	if st.Nlink > 1 && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if m.seen[st.Ino] {
			return
		}
		m.seen[st.Ino] = true
	}
	m.inodes++
	m.bytes += st.Blocks * 512
}

// directory adds the directory at.path in at.fd and what is in it, from
// descriptor to descriptor and never through a link.
func (m *footprint) directory(ctx context.Context, at place) {
	fd, err := unix.Openat(at.fd, at.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it is gone, or nobody may look into it
	}
	dir := os.NewFile(uintptr(fd), at.path)
	defer dir.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	m.add(&st)
	for at.depth < m.limits.Depth && m.inodes < int64(m.limits.Entries) && ctx.Err() == nil {
		names, err := dir.Readdirnames(1024)
		for _, child := range names {
			switch {
			case unix.Fstatat(fd, child, &st, unix.AT_SYMLINK_NOFOLLOW) != nil:
			case st.Mode&unix.S_IFMT == unix.S_IFDIR:
				m.directory(ctx, place{fd: fd, path: child, depth: at.depth + 1})
			default:
				m.add(&st)
			}
		}
		if err != nil { // io.EOF, or there is no more to be had
			return
		}
	}
}
