//go:build !linux

package disk

import "golang.org/x/sys/unix"

// Sync writes what the file systems still hold in memory.
func Sync(string) error { return unix.Sync() }
