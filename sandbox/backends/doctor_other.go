//go:build !linux

package backends

import (
	"context"
	"runtime"
)

// Doctor reports that this system has no jails yet.
func Doctor(context.Context) []Finding {
	return []Finding{{"jail", LevelProblem, "no backend can make a jail on " + runtime.GOOS, ""}}
}
