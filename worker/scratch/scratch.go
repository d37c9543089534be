// Package scratch makes directories for files that a program needs for a moment, and removes
// those of programs that were killed.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Dir makes an empty directory, for this user alone, in the system's directory for temporary
// files. The purpose is a part of its name. Done removes it, and has to be kept until then.
// A program that is killed leaves it to the next one of this user that asks for one for the
// same purpose.
func Dir(purpose string) (dir string, done func() error, err error) {
	dir, _, done, err = In(os.TempDir(), purpose)
	return dir, done, err
}

// In is Dir in a directory that the caller chooses, where what it makes can be renamed to its
// place. A process that has the lock open, too, keeps the directory from being removed when the
// program is killed.
func In(parent, purpose string) (dir string, lock *os.File, done func() error, err error) {
	prefix := "penstock-" + purpose + "-"
	removeLeft(parent, prefix)
	for {
		outer, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return "", nil, nil, err
		}
		held, err := disk.TryLock(filepath.Join(outer, lockName), syscall.LOCK_EX)
		if errors.Is(err, disk.ErrLocked) || errors.Is(err, os.ErrNotExist) {
			continue // another program took it for one that is left, and removes it
		}
		if err != nil {
			return "", nil, nil, errors.Join(fmt.Errorf("directory for temporary files: %w", err), os.RemoveAll(outer))
		}
		// Removed under the lock: whoever gets it afterwards finds nothing.
		done = func() error { return errors.Join(disk.RemoveAll(outer), held.Release()) }
		dir = filepath.Join(outer, filesName)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return "", nil, nil, errors.Join(err, done())
		}
		return dir, held.File, done, nil
	}
}

// What is in such a directory.
const (
	lockName  = "lock" // locked as long as the program lives
	filesName = "files"
)

// removeLeft removes directories whose programs have ended. What cannot be removed is left
// for the next one.
func removeLeft(parent, prefix string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		outer := filepath.Join(parent, e.Name())
		st, err := os.Lstat(outer)
		if err != nil || !st.IsDir() || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) || !ours(outer) { //nolint:gosec // an id of a user fits
			continue
		}
		lock, err := disk.TryLock(filepath.Join(outer, lockName), syscall.LOCK_EX)
		if err != nil {
			continue // it is in use
		}
		_ = disk.RemoveAll(outer)
		_ = lock.Release()
	}
}

// ours reports whether a directory has what Dir puts there, and nothing else: people may have
// directories whose names begin as ours do.
func ours(outer string) bool {
	entries, err := os.ReadDir(outer)
	locked := false
	for _, e := range entries {
		locked = locked || e.Name() == lockName && e.Type().IsRegular()
		if e.Name() != lockName && e.Name() != filesName {
			return false
		}
	}
	return err == nil && locked
}
