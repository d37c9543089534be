//go:build linux || darwin

package filelock

import (
	"errors"
	"os"
	"syscall"
)

// flock locks the file until it is closed, and reports whether another process
// holds the lock.
func flock(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
