// Package poolmark marks the jails of a pool's workers, so that a worker that begins ends
// those that a killed one left, and no others of the host.
package poolmark

import (
	"context"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// Label is the label of a jail with a name, usually that of its workspace, in a pool with
// a mark. Without a mark it is the name: no worker ends such a jail.
func Label(name, mark string) string {
	if mark == "" {
		return name
	}
	return name + "." + mark
}

// On reports whether a jail with that label belongs to the pool with a mark.
func On(label, mark string) bool { return mark != "" && strings.HasSuffix(label, "."+mark) }

// A Jail is where a worker runs programs of its own, git for one, on files that it does
// not trust. Every jail that it starts has the pool's mark.
type Jail struct {
	Backend sandbox.Backend // nil: this worker has none
	Mark    string          // of the pool
}

// Run is [sandbox.Run] of a specification whose label is the jail's name.
func (j Jail) Run(ctx context.Context, spec sandbox.Spec, streams sandbox.Streams) (sandbox.Exit, error) {
	spec.Label = Label(spec.Label, j.Mark)
	return sandbox.Run(ctx, j.Backend, spec, streams)
}
