//go:build unix

package freeport

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// reserve takes a block of ports for this process, by a lock that ends with it, and reports
// whether it was free.
func reserve(block int) bool {
	dir := filepath.Join(os.TempDir(), "penstock-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return true // no process can reserve any
	}
	fd, err := syscall.Open(filepath.Join(dir, strconv.Itoa(block)), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return true
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = syscall.Close(fd) // nothing was written
		return false
	}
	return true // the descriptor stays open
}
