//go:build linux || darwin

package policy

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the file for this program until it is closed.
func lock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
