package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync writes what the file system of a directory still holds in memory.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}
