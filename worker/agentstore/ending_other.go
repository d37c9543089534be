//go:build !linux

package agentstore

import "syscall"

// ending makes a program the leader of a group of processes.
func ending() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
