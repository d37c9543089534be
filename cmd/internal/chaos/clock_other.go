//go:build unix && !(linux && amd64)

package chaos

import (
	"errors"
	"os/exec"
	"time"
)

// A wallClock would be one that can be moved.
type wallClock struct{}

func startTimed(*exec.Cmd) (*wallClock, error) { return nil, errors.ErrUnsupported }

func (c *wallClock) move(time.Duration) error { return errors.ErrUnsupported }

func (c *wallClock) close() {}
