//go:build !linux

package gitmonitor

import "errors"

// Directories fails: other systems have no overlays.
func Directories([]string) ([]byte, error) { return nil, errors.ErrUnsupported }

// Names fails: other systems have no overlays.
func Names(string, []byte, Marks) ([]byte, error) { return nil, errors.ErrUnsupported }

// Lists is never true.
func Lists(string, string) bool { return false }
