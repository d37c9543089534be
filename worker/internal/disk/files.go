package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenDir opens a directory that is not a link, including one that its owner made
// unreadable.
func OpenDir(parent int, name string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(parent, name, flags, 0)
	if err != unix.EACCES {
		return fd, err
	}
	if err := ChmodAt(parent, name, 0o700); err != nil {
		return -1, err
	}
	return unix.Openat(parent, name, flags, 0)
}

// Names lists a directory, in no order.
func Names(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// IsEmpty reports whether dir is a directory that can be read, and nothing is in it.
func IsEmpty(dir string) bool {
	names, err := Names(dir)
	return err == nil && len(names) == 0
}

// ReplaceFile writes a value through another file of the same directory.
func ReplaceFile(name, fresh string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	f, err := os.Create(fresh)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(fresh, name)
}

// CopyFile writes a copy that only the worker can read.
func CopyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
}

// Within reports whether path is dir or below it.
func Within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// Inode names a file of this host, for as long as it exists.
func Inode(info os.FileInfo) string {
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

// Exists reports whether path exists; a dangling link does.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// CheckDir returns an error unless the directory that was made still is in its place,
// by its inode: another one there is not ours. An empty inode is unknown, and any
// directory is accepted.
func CheckDir(path, inode string) error {
	info, err := os.Lstat(path)
	if err == nil && (!info.IsDir() || inode != "" && inode != Inode(info)) {
		err = fmt.Errorf("%s is not the directory that was made", Printable(path))
	}
	return err
}
