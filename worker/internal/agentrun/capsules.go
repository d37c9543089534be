package agentrun

import (
	"context"

	"github.com/penstock-run/penstock/worker/internal/conversation"
)

// capsules has the last position of the run at which a capsule is due: one that was not stored
// yet makes room for the next.
type capsules chan conversation.Position

func newCapsules() capsules { return make(capsules, 1) }

// offer never blocks: all that send hold the state's lock.
func (c capsules) offer(at conversation.Position) {
	select {
	case <-c:
	default:
	}
	c <- at
}

// keepCapsules stores the capsules that are due until the agent has ended.
func (r *Run) keepCapsules(ctx context.Context) {
	for {
		select {
		case at := <-r.state.capsules:
			r.cfg.Conversation.Settle(ctx, at, func() bool { return r.state.rests(at) })
			stored := r.cfg.Conversation.Store(ctx, at, "", r.cfg.Snapshot)
			if !at.Since.IsZero() {
				r.state.park(at, stored, r.terminals.InUse())
			}
		case <-r.process.Done():
			return
		}
	}
}
