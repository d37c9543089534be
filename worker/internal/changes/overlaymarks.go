package changes

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"golang.org/x/sys/unix"
)

// MayHaveCommits reports whether there may be a commit in an overlay that the
// base does not have. Each needs an object at least, so something beside the index
// was written in the git directory then, by the job or by setup.
func (d *Directory) MayHaveCommits() bool {
	return gitWritten(d.Path) || d.View.Layer != "" && gitWritten(d.View.Layer)
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
