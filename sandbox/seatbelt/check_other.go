//go:build !darwin

package seatbelt

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/sandbox"
)

// Check reports that there is no such sandbox on this system.
func (b *Backend) Check(context.Context) ([]sandbox.Feature, error) {
	return nil, errors.New("sandbox-exec exists on macOS only")
}
