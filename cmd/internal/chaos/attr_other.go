//go:build unix && !linux

package chaos

import "syscall"

// apart starts a program in a session of its own: a terminal's interrupt is
// for who drains it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
