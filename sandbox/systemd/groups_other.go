//go:build !linux

package systemd

import (
	"context"

	"github.com/penstock-run/penstock/sandbox"
)

func walls() []sandbox.Feature { return nil }

func (tools) groups(context.Context, string) ([]sandbox.Feature, error) { return nil, nil }
