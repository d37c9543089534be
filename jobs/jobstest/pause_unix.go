//go:build unix

package jobstest

import (
	"syscall"

	"github.com/penstock-run/penstock/sandbox/exectest"
)

// Pause stops the server, which then answers nothing, until Continue.
func (c *ChildServer) Pause() { exectest.Pause(c.tb, c.cmd.Process) }

// Continue lets a paused server go on.
func (c *ChildServer) Continue() {
	c.tb.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.tb.Error(err)
	}
}
