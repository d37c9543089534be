package natsd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// stored is the part of a server's directory that holds streams.
const stored = "jetstream"

// Beside makes a directory for a server that keeps the same credentials as
// that of dir, and nothing else of it. It removes what an interrupted call has left
// there. If another process works there it returns an [InUseError].
func Beside(dir, fresh string) error {
	if err := os.MkdirAll(fresh, 0o700); err != nil {
		return err
	}
	lock, err := takeLock(fresh, "restore")
	if err != nil {
		return err
	}
	err = os.RemoveAll(filepath.Join(fresh, stored))
	entries, readErr := os.ReadDir(dir)
	if errors.Is(readErr, fs.ErrNotExist) {
		readErr = nil
	}
	err = errors.Join(err, readErr)
	for _, e := range entries {
		if err != nil || !e.Type().IsRegular() || e.Name() == filepath.Base(lockPath(dir)) || e.Name() == filepath.Base(descriptor(dir)) {
			continue
		}
		var data []byte
		if data, err = os.ReadFile(filepath.Join(dir, e.Name())); err == nil {
			err = writeFile(filepath.Join(fresh, e.Name()), data)
		}
	}
	return errors.Join(err, lock.release())
}

// Adopt replaces what the server of dir keeps by what that of fresh has kept,
// all at once, and removes fresh. Neither may run.
func Adopt(dir, fresh string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock, err := takeLock(dir, "restore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	// Restored files that are not synced otherwise reach the disk before the swap.
	if err := syncAll(filepath.Join(fresh, stored)); err != nil {
		return fmt.Errorf("write what was restored to the disk: %w", err)
	}
	old, replaced := filepath.Join(dir, stored), filepath.Join(fresh, "replaced")
	if err := os.Rename(old, replaced); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(filepath.Join(fresh, stored), old); err != nil {
		return errors.Join(err, os.Rename(replaced, old))
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(fresh)
}

func syncAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path)
	})
}

// syncDir waits until a directory, or a file, is on the disk.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
