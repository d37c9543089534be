//go:build !linux

package gitmonitor

import "errors"

// List fails: other systems have no overlays.
func List(string, []string, Marks) ([]byte, error) { return nil, errors.ErrUnsupported }
