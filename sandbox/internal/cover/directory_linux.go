package cover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// A Directory is made in memory and put over one that the jail has: small files
// and directories of the host, which nobody inside can change. bubblewrap takes
// a tenth of a millisecond for each of the files, and more for a directory.
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

// made is a Directory that is nowhere yet. Its mounts end with their descriptors.
type made struct {
	root  int
	trees []int
	of    Directory
}

// prepare makes d, of what the calling thread sees.
func (d Directory) prepare() (m *made, err error) {
	m = &made{root: -1, of: d}
	defer func() {
		if err != nil {
			m.close()
			err = fmt.Errorf("make %s: %w", d.Path, err)
		}
	}()
	if m.root, err = memory(); err != nil {
		return m, err
	}
	for _, f := range d.Files {
		if err := f.write(m.root); err != nil {
			return m, &fs.PathError{Op: "write", Path: f.Path, Err: err}
		}
	}
	for _, t := range d.Trees {
		err := directories(m.root, t.Path)
		if err == nil {
			err = m.clone(t.Source)
		}
		if err != nil {
			return m, &fs.PathError{Op: "show", Path: t.Source, Err: err}
		}
	}
	return m, fix(m.root)
}

// memory mounts a file system in memory nowhere.
func memory() (int, error) {
	config, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(config)
	err = errors.Join(unix.FsconfigSetString(config, "mode", "0755"), unix.FsconfigCreate(config))
	if err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	root, err := unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
	return root, os.NewSyscallError("fsmount", err)
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
		// The process's mask of permissions is somebody else's choice.
		return unix.Fchmodat(root, p, 0o755, 0)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// clone mounts what lies at source once more, nowhere.
func (m *made) clone(source string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	m.trees = append(m.trees, tree)
	return fix(tree)
}

// fix makes a mount, and those below it, read-only, and deaf to what happens
// where it comes from.
func fix(mount int) error {
	attr := &unix.MountAttr{
		Attr_set:    unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV,
		Propagation: unix.MS_PRIVATE,
	}
	for wait, left := 50*time.Microsecond, forkTimeout; ; wait *= 2 {
		err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
		// What this process forks meanwhile, such as the mechanism itself, has
		// the file that was just written open until it executes.
		if !errors.Is(err, unix.EBUSY) || left <= 0 {
			return os.NewSyscallError("mount_setattr", err)
		}
		time.Sleep(wait)
		left -= wait
	}
}

// forkTimeout bounds the time between a fork and an exec.
const forkTimeout = 5 * time.Second

// attach puts the directory where the calling thread sees its path.
func (m *made) attach() error {
	err := attach(m.root, m.of.Path)
	for i := 0; i < len(m.trees) && err == nil; i++ {
		err = attach(m.trees[i], path.Join(m.of.Path, m.of.Trees[i].Path))
	}
	return err
}

func attach(mount int, target string) error {
	if err := unix.MoveMount(mount, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("show %s: %w", target, os.NewSyscallError("move_mount", err))
	}
	return nil
}

func (m *made) close() {
	for _, fd := range append(m.trees, m.root) {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	m.root, m.trees = -1, nil
}
