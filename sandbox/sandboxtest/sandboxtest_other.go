//go:build !linux

package sandboxtest

import (
	"testing"

	"github.com/penstock-run/penstock/sandbox"
)

// Run skips: there are no attempts for this system.
func Run(t *testing.T, b sandbox.Backend, _ ...func(sandbox.Spec) sandbox.Spec) {
	Require(t, b)
	t.Skip("no attempts are known for this system")
}

func attempt(string, []string) string { return "no attempts are known for this system" }
