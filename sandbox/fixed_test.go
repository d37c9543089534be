package sandbox_test

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/sandbox"
)

// fixed is a backend that enforces one feature and can start nothing.
type fixed struct{ feature sandbox.Feature }

func (f fixed) Name() string { return "fixed" }

func (f fixed) Check(context.Context) ([]sandbox.Feature, error) {
	return []sandbox.Feature{f.feature}, nil
}

func (f fixed) Command(sandbox.Spec) (*sandbox.Command, error) {
	return nil, errors.New("nothing can be started")
}
