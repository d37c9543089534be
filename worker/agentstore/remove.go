package agentstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/scratch"
)

// temporary is the purpose of the store's temporary directories, and a part of their names.
const temporary = "agent"

// Remove removes a version, unless a job of this host uses it: then the error is [ErrInUse].
func (s *Store) Remove(name, version string) (err error) {
	i, err := s.Get(name, version)
	if err != nil {
		return err
	}
	lock, err := disk.TryLock(filepath.Join(i.dir, lockName), syscall.LOCK_EX)
	if errors.Is(err, disk.ErrLocked) {
		return fmt.Errorf("version %s of %s %w", version, name, ErrInUse)
	}
	if errors.Is(err, os.ErrNotExist) {
		return &MissingError{name, version} // another program removes it
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	to, _, done, err := scratch.In(s.root, temporary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	return os.Rename(i.dir, filepath.Join(to, version))
}
