//go:build !linux

package bwrap

import (
	"errors"

	"github.com/penstock-run/penstock/sandbox"
)

func readHost(sandbox.Spec, string) (host, error) {
	return host{}, errors.New("bwrap: bubblewrap exists on Linux only")
}

func features() []sandbox.Feature { return nil }
