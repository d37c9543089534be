//go:build unix && !linux

package chaos

import (
	"errors"
	"syscall"
)

// apart starts a program in a session of its own, because a terminal's interrupt is for
// the caller, which drains it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func mount(string, int64) (unmount func() error, err error) { return nil, errors.ErrUnsupported }
