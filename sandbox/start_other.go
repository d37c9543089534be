//go:build !linux && !darwin

package sandbox

import (
	"context"
	"errors"
	"runtime"
)

// jail has no meaning on systems where none can be started.
type jail interface {
	Terminate()
	Kill()
}

func halted(jail) int { return 0 }

var errSystem = errors.New("no backend can make a jail on " + runtime.GOOS)

// Start reports that there are no jails on this system.
func Start(_ context.Context, _ Backend, spec Spec, _ Streams) (*Process, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	return nil, errSystem
}
