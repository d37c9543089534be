//go:build !linux

package layout

import (
	"errors"

	"github.com/penstock-run/penstock/sandbox"
)

// Read reports that this system's layout is not known.
func Read(sandbox.Spec, string) (Host, error) {
	return Host{}, errors.New("jails by namespaces exist on Linux only")
}
