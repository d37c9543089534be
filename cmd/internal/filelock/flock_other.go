//go:build !linux && !darwin

package filelock

import (
	"errors"
	"os"
)

func flock(*os.File) (taken bool, err error) { return false, errors.ErrUnsupported }
