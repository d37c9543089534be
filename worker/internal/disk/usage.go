package disk

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// Usage measures how much disk space directories take: the blocks of their files, and
// the number of inodes. Other processes may write there: files that come and go
// meanwhile may or may not be counted. Usage stops counting below the depth, and above
// the number, in max.
func Usage(ctx context.Context, max UsageLimits, dirs ...string) (bytes, inodes int64) {
	m := &footprint{depth: max.Depth, entries: max.Entries, seen: map[uint64]bool{}}
	for _, dir := range dirs {
		m.directory(ctx, unix.AT_FDCWD, dir, 0)
	}
	return m.bytes, m.inodes
}

// UsageLimits bound a call of Usage.
type UsageLimits struct{ Depth, Entries int }

type footprint struct {
	depth, entries int
	seen           map[uint64]bool // files with several links
	bytes, inodes  int64
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

// directory adds the directory path in parent and what is in it, from
// descriptor to descriptor and never through a link.
func (m *footprint) directory(ctx context.Context, parent int, path string, depth int) {
	fd, err := unix.Openat(parent, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it is gone, or not readable
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return
	}
	m.add(&st)
	for depth < m.depth && m.inodes < int64(m.entries) && ctx.Err() == nil {
		names, err := dir.Readdirnames(1024)
		for _, child := range names {
			switch {
			case unix.Fstatat(fd, child, &st, unix.AT_SYMLINK_NOFOLLOW) != nil:
			case st.Mode&unix.S_IFMT == unix.S_IFDIR:
				m.directory(ctx, fd, child, depth+1)
			default:
				m.add(&st)
			}
		}
		if err != nil { // io.EOF, or no more entries
			return
		}
	}
}
