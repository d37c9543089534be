package worker

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// snapshot stores what was changed in the workspace while it is still worked in.
func (a *attempt) snapshot(ctx context.Context) (*jobs.Salvage, error) {
	return a.out.Snapshot(ctx, a.space)
}

// seal stores the capsule of an attempt that is over, with what is stored of
// its work already.
func (a *attempt) seal(ctx context.Context, space *workspace.Workspace, v jobs.Ended) {
	work, complete := a.out.Work(space, v)
	if !complete {
		return
	}
	at := a.talk.at
	at.Conversation = a.talk.resume
	a.conversation.Store(context.WithoutCancel(ctx), at, v.Reason, func(context.Context) (*jobs.Salvage, error) { return work, nil })
}

// resume puts the conversation into the agent's home, or has the agent begin anew.
func (a *attempt) resume(ctx context.Context, in confine.Jail, c *jobs.Capsule, why string) error {
	resumed, why, err := a.conversation.Resume(ctx, in.Kept, c, why)
	if err != nil {
		return err
	}
	if !resumed {
		return a.anew(ctx, why)
	}
	a.talk.at = a.conversation.Begun()
	a.talk.resume = a.talk.at.Conversation
	return nil
}

// anew tells the session that the agent knows nothing of what was before, if
// there is anything to say.
func (a *attempt) anew(ctx context.Context, why string) error {
	var epoch uint64
	if why != "" {
		s, err := a.salvages.Before(ctx, a.rec, a.claim.Epoch())
		if err != nil {
			return err
		}
		if s != nil {
			epoch = s.Epoch
		}
	}
	a.talk.resume = ""
	a.conversation.Anew(why, epoch)
	return nil
}

// didNotResume reports whether an agent has refused to go on with its conversation: it
// ended before it had begun a turn.
func (a *attempt) didNotResume(err error) bool {
	end, ok := errors.AsType[*verdict.EndedError](err)
	return ok && end.Reason == jobs.AgentProtocol && a.talk.round == 0 && a.conversation.Refused(a.talk.at)
}
