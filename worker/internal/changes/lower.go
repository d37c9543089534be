package changes

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A shown is the lower layers that show through a directory of the upper layer, or in
// its place.
type shown struct {
	layer int    // descriptor of the layer's directory, -1: none shows through
	lower string // the template's directory that shows through; meaningless if alone
	alone bool   // none of the template's does
}

func (s shown) close() {
	if s.layer >= 0 {
		unix.Close(s.layer)
	}
}

// A lower is the layers below the upper directory of an overlay.
type lower struct {
	View
	known  git.Listing // the template's files
	opener opener
}

// top is the lower layers at the top of the upper directory.
func (l lower) top() (shown, error) {
	if l.Layer == "" {
		return shown{layer: -1}, nil
	}
	fd, err := disk.OpenDir(unix.AT_FDCWD, l.Layer)
	if err != nil {
		return shown{layer: -1}, fmt.Errorf("open layer %s: %w", l.Layer, err)
	}
	return shown{layer: fd}, nil
}

// enter opens the directory name of at in the upper directory, if that exists, and the
// lower layers that show through it.
func (l lower) enter(at layered, name string) (int, shown, error) {
	var fd int
	err := error(unix.ENOENT)
	if at.fd >= 0 {
		fd, err = l.opener.open(at.fd, name, unix.O_DIRECTORY)
	}
	if err == unix.ENOENT {
		below, err := l.beneath(at.shown, name)
		return -1, below, err
	}
	if err != nil {
		return -1, shown{}, err
	}
	opaque, from, err := marks(fd)
	below := shown{layer: -1, alone: true}
	switch {
	case err != nil || opaque:
	case strings.HasPrefix(from, "/"):
		below, err = l.resolve(from[1:])
	case from != "":
		below, err = l.beneath(at.shown, from)
	default:
		below, err = l.beneath(at.shown, name)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, below, err
}

// resolve finds what is at a path below the upper directory.
func (l lower) resolve(p string) (shown, error) {
	at, err := l.top()
	for _, name := range strings.Split(p, "/") {
		if err != nil {
			break
		}
		next, failed := l.beneath(at, name)
		at.close()
		at, err = next, failed
	}
	return at, err
}

// beneath finds the directory name in the lower layers of a directory.
func (l lower) beneath(at shown, name string) (shown, error) {
	next := shown{layer: -1, lower: path.Join(at.lower, name), alone: at.alone}
	var st unix.Stat_t
	err := error(unix.ENOENT)
	if at.layer >= 0 {
		err = unix.Fstatat(at.layer, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case err == unix.ENOENT:
	case err != nil:
		return next, err
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		next.alone = true // the layer's hides the template's
	default:
		if next.layer, err = l.opener.open(at.layer, name, unix.O_DIRECTORY); err != nil {
			return shown{layer: -1}, err
		}
		opaque, from, err := marks(next.layer)
		if err != nil {
			next.close()
			return shown{layer: -1}, err
		}
		next.alone = opaque || next.alone
		switch {
		case strings.HasPrefix(from, "/"):
			next.lower, next.alone = from[1:], false
		case from != "":
			next.lower = path.Join(at.lower, from)
		}
	}
	next.alone = next.alone || len(l.known.Below(next.lower)) == 0
	return next, nil
}

// read reads a file of the template.
func (l lower) read(p string) (content []byte, err error) {
	for _, dir := range l.Trees {
		// Above the file is what hides it, and what is above that hides both.
		if content, err = os.ReadFile(path.Join(dir, p)); err == nil {
			break
		}
	}
	return content, err
}
