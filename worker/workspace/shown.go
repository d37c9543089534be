package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A shown is what shows through a directory of the upper layer, or in its place.
type shown struct {
	layer int    // descriptor of the layer's directory, -1: none shows through
	lower string // the template's directory that does; meaningless if alone
	alone bool   // none of the template's does
}

func (s shown) close() {
	if s.layer >= 0 {
		unix.Close(s.layer)
	}
}

// topLayer is what shows through the top of the upper directory.
func (w *walk) topLayer() (shown, error) {
	if w.layerTop == "" {
		return shown{layer: -1}, nil
	}
	fd, err := disk.OpenDir(unix.AT_FDCWD, w.layerTop)
	if err != nil {
		return shown{layer: -1}, fmt.Errorf("open layer %s: %w", w.layerTop, err)
	}
	return shown{layer: fd}, nil
}

// enter opens the directory name of at in the upper directory, if that has it,
// and what shows through it.
func (w *walk) enter(at layered, name string) (int, shown, error) {
	var fd int
	err := error(unix.ENOENT)
	if at.fd >= 0 {
		fd, err = w.open(at.fd, name, unix.O_DIRECTORY)
	}
	if err == unix.ENOENT {
		below, err := w.beneath(at.shown, name)
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
		below, err = w.resolve(from[1:])
	case from != "":
		below, err = w.beneath(at.shown, from)
	default:
		below, err = w.beneath(at.shown, name)
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, below, err
}

// resolve finds what is at a path below the upper directory.
func (w *walk) resolve(p string) (shown, error) {
	at, err := w.topLayer()
	for _, name := range strings.Split(p, "/") {
		if err != nil {
			break
		}
		next, failed := w.beneath(at, name)
		at.close()
		at, err = next, failed
	}
	return at, err
}

// beneath finds the directory name of what shows through a directory.
func (w *walk) beneath(at shown, name string) (shown, error) {
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
		if next.layer, err = w.open(at.layer, name, unix.O_DIRECTORY); err != nil {
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
	next.alone = next.alone || len(w.known.Below(next.lower)) == 0
	return next, nil
}

// marks reads what the kernel wrote on a directory of the upper layer: as
// root in attributes that nobody else can see, as a user in others. Only the
// ones count that it uses here: to a view that root mounted those of the other
// kind are any program's, and an agent could make up a removal that nobody sees.
func marks(fd int) (opaque bool, redirect string, err error) {
	class := "trusted"
	if os.Geteuid() != 0 {
		class = "user"
	}
	buf := make([]byte, 4096)
	for _, mark := range []string{"opaque", "redirect"} {
		n, err := unix.Fgetxattr(fd, class+".overlay."+mark, buf)
		switch {
		case errors.Is(err, unix.ENODATA) || errors.Is(err, unix.EOPNOTSUPP):
		case err != nil:
			return false, "", err
		case mark == "opaque":
			opaque = string(buf[:n]) == "y"
		default:
			redirect = string(buf[:n])
		}
	}
	return opaque, redirect, nil
}

// mayCommit reports whether there may be a commit in an overlay that the base
// does not have. Each needs an object at least, so something beside the index
// was written in the git directory then, by the job or by setup.
func (w *Workspace) mayCommit() bool {
	return gitWritten(w.dir) || w.layer != nil && gitWritten(w.layer.Files())
}

func gitWritten(dir string) bool {
	top, err := disk.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		return true
	}
	defer unix.Close(top)
	fd, err := disk.OpenDir(top, ".git")
	if err != nil {
		return err != unix.ENOENT
	}
	dotGit := os.NewFile(uintptr(fd), ".git")
	defer dotGit.Close()
	opaque, from, err := marks(fd)
	if err != nil || opaque || from != "" {
		return true
	}
	names, err := dotGit.Readdirnames(2)
	return err != nil && err != io.EOF || slices.ContainsFunc(names, func(name string) bool { return name != "index" })
}
