// Package backends finds a backend by its name.
package backends

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/none"
	"github.com/penstock-run/penstock/sandbox/oci"
	"github.com/penstock-run/penstock/sandbox/seatbelt"
	"github.com/penstock-run/penstock/sandbox/systemd"
)

// Auto is the name that stands for the best backend of the host.
const Auto = "auto"

// An UnknownError reports a name that no backend has.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("unknown backend %q; known are %s and %s", e.Name, Auto, strings.Join(Names(), ", "))
}

// Names lists the backends that this system may have, the preferred one first.
func Names() []string { return slices.Clone(names) }

// New returns the backend called name. Auto is the first of Names that can
// make a jail of this host's own programs here: it is never oci, which needs an
// image, nor seatbelt, which has never run on a Mac, nor none.
func New(ctx context.Context, name string) (sandbox.Backend, error) {
	switch name {
	case "bwrap":
		return &bwrap.Backend{}, nil
	case "systemd":
		return &systemd.Backend{}, nil
	case "oci":
		return &oci.Backend{}, nil
	case "seatbelt":
		return &seatbelt.Backend{}, nil
	case "none":
		return &none.Backend{}, nil
	case Auto:
		if !slices.ContainsFunc(names, func(name string) bool { return !byName(name) }) {
			return nil, errors.New(noChoice(names))
		}
		return First(ctx, names...)
	}
	return nil, &UnknownError{name}
}

// noChoice says why auto chooses none of a system's backends.
func noChoice(names []string) string {
	if slices.Contains(names, "seatbelt") {
		return "auto chooses no jail on macOS: seatbelt has never run on a Mac; ask for it by name (--backend seatbelt), or use Linux"
	}
	return "there is no jail for " + runtime.GOOS + ": use Linux, if need be in a virtual machine (on Windows that is WSL 2)"
}

func auto(ctx context.Context, candidates ...sandbox.Backend) (sandbox.Backend, error) {
	failed := errors.New("no backend can make a jail on this host")
	for i, b := range candidates {
		_, err := b.Check(ctx)
		if err == nil {
			return b, nil
		}
		between := ";"
		if i == 0 {
			between = ":"
		}
		failed = fmt.Errorf("%w%s %s: %w", failed, between, b.Name(), err) // one line: it becomes a job's message
	}
	return nil, failed
}

// First returns the first of the backends called names that can make a jail
// here. It leaves out those that a job has to ask for by name.
func First(ctx context.Context, names ...string) (sandbox.Backend, error) {
	var candidates []sandbox.Backend
	for _, name := range names {
		if byName(name) {
			continue
		}
		b, err := New(ctx, name)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, b)
	}
	if len(candidates) == 0 {
		return nil, fmt.Errorf("no backend is chosen from %q; a job has to ask for these by name", names)
	}
	return auto(ctx, candidates...)
}

// byName reports whether a backend is only used where it is asked for: none is no
// jail, oci needs an image, and seatbelt has never run on a Mac.
func byName(name string) bool { return name == "none" || name == "oci" || name == "seatbelt" }

// Untried returns the backend that First would try first, without trying it: for
// a program that makes one jail, which is the trial. It is nil where that one
// has to be tried to know what it enforces.
func Untried(names ...string) sandbox.Backend {
	i := slices.IndexFunc(names, func(name string) bool { return !byName(name) })
	if i < 0 || names[i] != "bwrap" {
		return nil
	}
	return (&bwrap.Backend{}).Trusting()
}

// Explain shows a command of a backend for people: what is executed, and what it
// gets in other ways than by arguments.
func Explain(backend string, c *sandbox.Command) string {
	switch backend {
	case "bwrap":
		return bwrap.Explain(c)
	case "systemd":
		return systemd.Explain(c)
	}
	return c.Path + " = " + strings.Join(c.Args, " ") + "\n"
}
