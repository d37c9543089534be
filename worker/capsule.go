package worker

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// snapshot stores what was changed in the workspace while it is still worked in.
func (r *agentRuns) snapshot(ctx context.Context) (*jobs.Salvage, error) {
	return r.of.out.Snapshot(ctx, r.space)
}

// begin puts the conversation into the agent's home, or has the agent begin anew.
func (r *agentRuns) begin(ctx context.Context, c *jobs.Capsule, why string) error {
	resumed, why, err := r.of.conversation.Resume(ctx, r.in.Kept, c, why)
	if err != nil {
		return err
	}
	if !resumed {
		return r.anew(ctx, why)
	}
	r.at = r.of.conversation.Begun()
	r.resume = r.at.Conversation
	return nil
}

// anew tells the session that the agent knows nothing of what was before, if
// there is anything to say.
func (r *agentRuns) anew(ctx context.Context, why string) error {
	var epoch uint64
	if why != "" {
		s, err := r.of.salvages.Before(ctx, r.of.rec, r.of.claim.Epoch())
		if err != nil {
			return err
		}
		if s != nil {
			epoch = s.Epoch
		}
	}
	r.resume = ""
	r.of.conversation.Anew(why, epoch)
	return nil
}

// didNotResume reports whether an agent has refused to go on with its conversation: it
// ended before it had begun a turn.
func (r *agentRuns) didNotResume(err error) bool {
	end, ok := errors.AsType[*verdict.EndedError](err)
	return ok && end.Reason == jobs.AgentProtocol && r.round == 0 && r.of.conversation.Refused(r.at)
}
