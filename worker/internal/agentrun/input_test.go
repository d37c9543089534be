package agentrun

import (
	"testing"

	"github.com/penstock-run/penstock/jobs/control"
)

// What an agent is told again before it runs may be more than waits for an agent that
// does not read, and none of it is dropped.
func TestWhatIsToldAgainIsNotDropped(t *testing.T) {
	in := newInput()
	large := make([]byte, control.MaxImageBytes)
	n := 0
	for ; in.put(large); n++ {
	}
	in.add(large, large)
	if lines, _ := in.take(); len(lines) != n+2 {
		t.Errorf("%d lines wait, want %d and 2", len(lines), n)
	}
}
