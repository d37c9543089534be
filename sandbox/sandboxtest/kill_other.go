//go:build !linux

package sandboxtest

import (
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// Kill skips: no backend starts anything on this system.
func Kill(t *testing.T, b sandbox.Backend, _ int, _ func(sandbox.Spec) sandbox.Spec) { Run(t, b) }

// RunnerKilled skips: no backend starts anything on this system.
func RunnerKilled(t *testing.T, b sandbox.Backend, _ bool) { Run(t, b) }

// Active skips: no backend starts anything on this system.
func Active(t *testing.T, b sandbox.Backend, _ func(sandbox.Spec) sandbox.Spec) { Run(t, b) }

// ServeRunner does nothing.
func ServeRunner(sandbox.Backend, func(sandbox.Spec) sandbox.Spec) {}

// Compatible skips: no backend starts anything on this system.
func Compatible(t *testing.T, b sandbox.Backend, _ ...func(sandbox.Spec) sandbox.Spec) { Run(t, b) }

// Unprivileged skips: there are no attempts for this system.
func Unprivileged(t *testing.T, _ string) { t.Skip("no attempts are known for this system") }
