//go:build !linux

package results

import "errors"

func fillDisk(string) error { return errors.ErrUnsupported }
