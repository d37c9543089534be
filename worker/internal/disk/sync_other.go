//go:build !linux

package disk

import "golang.org/x/sys/unix"

// Sync writes the buffers of all file systems to disk.
func Sync(string) error { return unix.Sync() }
