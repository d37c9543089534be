package agentrun

import (
	"context"

	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/conversation"
)

// stay has the capsule stored of a turn that is over, while the agent waits for
// more.
func (r *Run) stay() { r.offer(r.now()) }

// offer has the capsule stored of a position.
func (r *Run) offer(at conversation.Position) {
	select {
	case <-r.rested: // nobody has looked at the last one
	default:
	}
	r.rested <- at // it has room, and only this method sends, under the lock
}

// now is how far the run has come. Its caller holds the lock.
func (r *Run) now() conversation.Position {
	return conversation.Position{
		Conversation: r.decoder.Total().Session, Turn: r.cfg.Conversation.Turns() + r.turn, Open: r.state == agent.Working,
		Heard: r.cfg.Prompts.Heard(), Asks: r.openAsks(),
	}
}

// Position is how far the run has come.
func (r *Run) Position() conversation.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now()
}

// keepCapsules stores a capsule after each turn until the agent has ended.
func (r *Run) keepCapsules(ctx context.Context) {
	for {
		select {
		case at := <-r.rested:
			stored := r.cfg.Conversation.Store(ctx, at, "", r.cfg.Snapshot)
			if !at.Since.IsZero() {
				r.leaveOpen(at, stored)
			}
		case <-r.process.Done():
			return
		}
	}
}
