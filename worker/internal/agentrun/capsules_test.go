package agentrun

import (
	"testing"

	"github.com/penstock-run/penstock/worker/internal/conversation"
)

// Offers do not wait for one another: of those that were not stored yet, the last counts.
func TestTheLastCapsuleCounts(t *testing.T) {
	t.Parallel()
	c := newCapsules()
	c.offer(conversation.Position{Turn: 1})
	c.offer(conversation.Position{Turn: 2})
	if at := <-c; at.Turn != 2 {
		t.Errorf("the capsule is of turn %d", at.Turn)
	}
}
