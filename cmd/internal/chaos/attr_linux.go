package chaos

import "syscall"

// apart starts a program in a session of its own: a terminal's interrupt is
// for who drains it. It ends with this program, also when that is killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
