package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Sync writes the buffers of a directory's file system to disk.
func Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.NewSyscallError("syncfs", unix.Syncfs(int(f.Fd()))), f.Close())
}
