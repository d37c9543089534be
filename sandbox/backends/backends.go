// Package backends finds a backend by its name.
package backends

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/none"
)

// Auto is the name that stands for the best backend of the host.
const Auto = "auto"

// An UnknownError reports a name that no backend has.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown backend %q; known are %s and %s", e.Name, Auto, strings.Join(Names(), ", "))
}

// Names lists the backends, the preferred one first.
func Names() []string { return []string{"bwrap", "none"} }

// New returns the backend called name. Auto is the first of Names that can
// make a jail here; it is never none, which has to be asked for.
func New(ctx context.Context, name string) (sandbox.Backend, error) {
	switch name {
	case "bwrap":
		return &bwrap.Backend{}, nil
	case "none":
		return &none.Backend{}, nil
	case Auto:
		return auto(ctx, &bwrap.Backend{})
	}
	return nil, &UnknownError{name}
}

func auto(ctx context.Context, candidates ...sandbox.Backend) (sandbox.Backend, error) {
	var reasons []error
	for _, b := range candidates {
		_, err := b.Check(ctx)
		if err == nil {
			return b, nil
		}
		reasons = append(reasons, fmt.Errorf("%s: %w", b.Name(), err))
	}
	return nil, fmt.Errorf("no backend can make a jail on this host: %w", errors.Join(reasons...))
}
