//go:build unix

package natsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockTries is how often a lock is tried: a process that only looks for the
// holder holds it for a moment.
const lockTries = 20

// A lock is held by the kernel for the life of the process, so that a killed
// one leaves none. The file says whose it is.
type lock struct {
	file  *os.File
	since time.Time
}

type lockText struct {
	PID   int       `json:"pid"`
	Owner string    `json:"owner"`
	Since time.Time `json:"since"`
}

func lockPath(dir string) string { return filepath.Join(dir, "penstock.lock") }

func takeLock(dir, owner string) (*lock, error) {
	f, err := os.OpenFile(lockPath(dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	for range lockTries {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(heldBy(dir, f), f.Close())
	}
	l := &lock{file: f, since: time.Now().UTC().Truncate(time.Millisecond)}
	if err == nil {
		err = l.sign(owner)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return l, nil
}

func (l *lock) sign(owner string) error {
	text, err := json.Marshal(lockText{os.Getpid(), owner, l.since})
	if err != nil {
		return err
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt(text, 0)
	return err
}

// release gives the lock free. The file stays: to remove it would let two
// processes lock two files of the same name. It is unlocked before it is closed,
// because a child between fork and exec has a copy of it open.
func (l *lock) release() error {
	return errors.Join(unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

func heldBy(dir string, f *os.File) *InUseError {
	held := &InUseError{Dir: dir}
	var text lockText
	// An unreadable text is that of a process which has just begun.
	if json.NewDecoder(f).Decode(&text) == nil {
		held.PID, held.Owner, held.Since = text.PID, text.Owner, text.Since
	}
	return held
}

// holderOf returns the holder of a directory's lock, or ErrNotRunning.
func holderOf(dir string) (*InUseError, error) {
	f, err := os.Open(lockPath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotRunning)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return heldBy(dir, f), nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the lock of %s: %w", dir, err)
	}
	return nil, fmt.Errorf("%s: %w", dir, ErrNotRunning)
}
