package changes

import (
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// MayHaveCommits reports whether an overlay may contain a commit that the base does not
// have. A commit needs an object at least, so the job or setup has written a file
// besides the index in the git directory then.
func (d *Directory) MayHaveCommits() bool {
	return gitWritten(d.Path) || d.View.Layer != "" && gitWritten(d.View.Layer)
}

// Untouched reports whether nothing was written in an overlay, and setup wrote nothing
// either: the files are those of the base.
func (d *Directory) Untouched() bool {
	return d.View != nil && d.View.Layer == "" && disk.IsEmpty(d.Path)
}

// Marks reads the kernel's marks on a directory of an upper layer: it hides the one below,
// or shows the one of another name.
func Marks(dir string) (opaque bool, redirect string, err error) {
	fd, err := disk.OpenDir(unix.AT_FDCWD, dir)
	if err != nil {
		return false, "", err
	}
	defer unix.Close(fd)
	return marks(fd)
}

// marks reads the kernel's marks on a directory of the upper layer: for root they are
// attributes that other users cannot see, for a user other attributes. Only the kind in
// use counts: in a view that root mounted, any program can set the other kind, and an
// agent could forge a removal that nobody sees.
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
