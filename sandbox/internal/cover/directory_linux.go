package cover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// A Directory is made in memory and put over one that the jail has: small files
// and directories of the host, which no process inside can change. bubblewrap
// takes a tenth of a millisecond for each file, and more for a directory.
type Directory struct {
	Path  string // in the jail
	Files []File
	Trees []Tree
}

// A File of a Directory. Its path is relative to that of the directory; of two
// with the same one the later counts.
type File struct {
	Path string
	Data []byte
	Mode fs.FileMode
}

// A Tree is a directory or file of the host, with all that is mounted below it.
type Tree struct {
	Source string
	Path   string // relative to that of the directory
}

// prepare makes d, of what the calling thread sees.
func (d Directory) prepare() (m made, err error) {
	defer func() {
		if err != nil {
			m.close()
			err = fmt.Errorf("make %s: %w", d.Path, err)
		}
	}()
	root, err := m.add(d.Path, "tmpfs", "mode", "0755")
	if err != nil {
		return m, err
	}
	for _, f := range d.Files {
		if err := f.write(root); err != nil {
			return m, &fs.PathError{Op: "write", Path: f.Path, Err: err}
		}
	}
	for _, t := range d.Trees {
		err := directories(root, t.Path)
		if err == nil {
			err = m.clone(t.Source, path.Join(d.Path, t.Path), fixed)
		}
		if err != nil {
			return m, &fs.PathError{Op: "show", Path: t.Source, Err: err}
		}
	}
	return m, restrict(root, fixed)
}

func (f File) write(root int) error {
	if err := directories(root, path.Dir(f.Path)); err != nil {
		return err
	}
	fd, err := unix.Openat(root, f.Path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), f.Path)
	_, err = file.Write(f.Data)
	return errors.Join(err, unix.Fchmod(fd, uint32(f.Mode.Perm())), file.Close())
}

// directories makes p, and what it lies in, below root.
func directories(root int, p string) error {
	if p == "." {
		return nil
	}
	err := unix.Mkdirat(root, p, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = directories(root, path.Dir(p)); err == nil {
			err = unix.Mkdirat(root, p, 0o755)
		}
	}
	if err == nil {
		// The process's umask is not ours to choose.
		return unix.Fchmodat(root, p, 0o755, 0)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}
