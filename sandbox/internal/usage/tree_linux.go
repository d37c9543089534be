package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// buffers are what directories are read into. Each jail is measured once a second, so new ones would be
// most of the garbage of a worker with many jails.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// Trees measures what is at and below dirs, and stops early once it is more
// than most. A file with several names counts once, a directory that is below
// another of dirs too. What comes and goes meanwhile may or may not count.
func Trees(dirs []string, most Size) (Size, error) {
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	w := &walker{most: most, seen: map[inode]struct{}{}, buf: buf[:], root: os.Geteuid() == 0}
	var roots []int
	defer func() {
		for _, fd := range roots {
			unix.Close(fd)
		}
	}()
	for _, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return Size{}, &fs.PathError{Op: "measure", Path: dir, Err: err}
		}
		roots = append(roots, fd)
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return Size{}, fmt.Errorf("measure %s: %w", dir, err)
		}
		if w.first(&st) {
			w.size = w.size.Add(sizeOf(&st))
			w.tops = append(w.tops, top{fd, inodeOf(&st)})
		}
	}
	for _, t := range w.tops {
		if err := w.walk(t); err != nil {
			return w.size, err
		}
	}
	return w.size, nil
}

type inode struct{ dev, ino uint64 }

func inodeOf(st *unix.Stat_t) inode { return inode{uint64(st.Dev), st.Ino} }

func sizeOf(st *unix.Stat_t) Size { return Size{Bytes: st.Blocks * 512, Inodes: 1} }

type top struct {
	fd int
	id inode
}

type walker struct {
	most Size
	size Size
	root bool               // permissions do not matter
	seen map[inode]struct{} // the tops, and files with several names
	tops []top
	buf  []byte
	path []level
}

// A level is a directory on the way from the top to where the walker is. Only
// the last is open: a tree may be deeper than there are descriptors.
type level struct {
	name   string // in the directory above
	id     inode
	below  []string // directories in it that are still to be walked
	lifted bool     // mode has to be put back
	mode   uint32
}

// first reports whether an inode was not seen before.
func (w *walker) first(st *unix.Stat_t) bool {
	id := inodeOf(st)
	if _, ok := w.seen[id]; ok {
		return false
	}
	w.seen[id] = struct{}{}
	return true
}

func (w *walker) walk(t top) error {
	at, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { unix.Close(at) }()
	w.path = []level{{id: t.id, below: w.scan(at, t.id.dev)}}
	for {
		here := &w.path[len(w.path)-1]
		if w.size.Exceeds(w.most) {
			here.below = nil // there is only the way back
		}
		if len(here.below) == 0 {
			if len(w.path) == 1 {
				return nil
			}
			if at, err = w.up(t, at); err != nil {
				return err
			}
			continue
		}
		name := here.below[len(here.below)-1]
		here.below = here.below[:len(here.below)-1]
		fd, l, err := w.open(at, name)
		if err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOMEM {
			return fmt.Errorf("measure: %w", err)
		}
		if err != nil || l.id.dev != t.id.dev {
			closeIf(fd)
			continue // it is gone, no directory any more, or not ours to read
		}
		l.below = w.scan(fd, t.id.dev)
		w.path = append(w.path, l)
		unix.Close(at)
		at = fd
	}
}

// up leaves the directory at, and returns the one above. If the directory has
// moved meanwhile, up looks for the one above from the top.
func (w *walker) up(t top, at int) (int, error) {
	here := w.path[len(w.path)-1]
	w.path = w.path[:len(w.path)-1]
	fd, err := unix.Openat(at, "..", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if here.lifted {
		_ = unix.Fchmod(at, here.mode) // its owner has changed it himself
	}
	above := w.path[len(w.path)-1].id
	if err == nil && sameDir(fd, above) {
		unix.Close(at)
		return fd, nil
	}
	closeIf(fd)
	if fd, err = w.again(t); err != nil {
		return at, err // which the caller closes
	}
	unix.Close(at)
	return fd, nil
}

// again walks the path once more, as far as it is still there.
func (w *walker) again(t top) (int, error) {
	at, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("measure: %w", err)
	}
	for i, l := range w.path[1:] {
		fd, err := unix.Openat(at, l.name, openDir, 0)
		if err != nil || !sameDir(fd, l.id) {
			closeIf(fd)
			w.path = w.path[:i+1]
			break
		}
		unix.Close(at)
		at = fd
	}
	return at, nil
}

func sameDir(fd int, id inode) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && inodeOf(&st) == id
}

func closeIf(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

const openDir = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC

// open opens a directory, whatever its mode says: a program may have made it
// unreadable to hide something, and it belongs to the same user.
func (w *walker) open(at int, name string) (int, level, error) {
	l := level{name: name}
	fd, err := unix.Openat(at, name, openDir, 0)
	if err != nil && err != unix.EACCES {
		return -1, l, err
	}
	if err == nil {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		l.id = inodeOf(&st)
		if err != nil || w.root || st.Mode&0o500 == 0o500 {
			return fd, l, err
		}
		unix.Close(fd) // it can be read, but not what is in it
	}
	return w.lift(at, l)
}

// lift opens a directory whose mode is in the way, and changes that until the
// walker leaves it.
func (w *walker) lift(at int, l level) (int, level, error) {
	handle, err := unix.Openat(at, l.name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, l, err
	}
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return -1, l, err
	}
	l.id, l.mode = inodeOf(&st), st.Mode&0o7777
	// The way by /proc leads to what is open, whatever has its name now.
	path := "/proc/self/fd/" + strconv.Itoa(handle)
	if err := unix.Chmod(path, l.mode|0o700); err != nil {
		return -1, l, err
	}
	l.lifted = true
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Chmod(path, l.mode) // the first error says more
	}
	return fd, l, err
}

// scan counts what is in a directory and returns the directories among it.
func (w *walker) scan(fd int, dev uint64) (below []string) {
	for {
		n, err := unix.ReadDirent(fd, w.buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 || err != nil || w.size.Exceeds(w.most) {
			return below
		}
		_, _, names := unix.ParseDirent(w.buf[:n], -1, nil)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			dir := st.Mode&unix.S_IFMT == unix.S_IFDIR
			switch {
			case dir && uint64(st.Dev) != dev:
				continue // Files on an overlay of two file systems have another device as well.
			case dir && w.isTop(inodeOf(&st)):
				continue
			case dir:
				below = append(below, name)
			case st.Nlink > 1 && !w.first(&st):
				continue
			}
			w.size = w.size.Add(sizeOf(&st))
		}
	}
}

func (w *walker) isTop(id inode) bool {
	for _, t := range w.tops {
		if t.id == id {
			return true
		}
	}
	return false
}
