//go:build unix

package jobstest

import "syscall"

// Pause stops the server, which then answers nothing, until Continue.
func (c *ChildServer) Pause() { c.signal(syscall.SIGSTOP) }

// Continue lets a paused server go on.
func (c *ChildServer) Continue() { c.signal(syscall.SIGCONT) }

func (c *ChildServer) signal(sig syscall.Signal) {
	c.tb.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.tb.Error(err)
	}
}
