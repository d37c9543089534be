package agentstore

import "syscall"

// ending has a program end with this one, even if this one is killed, and makes it the leader of
// a group of processes.
func ending() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
