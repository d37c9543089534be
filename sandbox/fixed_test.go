package sandbox_test

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/sandbox"
)

// changed compiles as another backend does, and changes the outcome.
type changed struct {
	sandbox.Backend
	change func(*sandbox.Command)
}

func (b changed) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	c, err := b.Backend.Command(spec)
	if err == nil {
		b.change(c)
	}
	return c, err
}

// fixed is a backend that enforces one feature and can start nothing.
type fixed struct{ feature sandbox.Feature }

func (f fixed) Name() string { return "fixed" }

func (fixed) Ready(_ context.Context, spec sandbox.Spec) (sandbox.Spec, error) { return spec, nil }

func (f fixed) Check(context.Context) ([]sandbox.Feature, error) {
	return []sandbox.Feature{f.feature}, nil
}

func (f fixed) Command(sandbox.Spec) (*sandbox.Command, error) {
	return nil, errors.New("nothing can be started")
}
