package conversation

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Find finds the capsule from which the attempt continues: that of an earlier attempt
// that was cut short, or the one with which the job was resumed or forked. It returns
// nil if the attempt begins anew, and the reason if that may be a surprise.
func (c *Conversation) Find(ctx context.Context, about agent.About) (found *jobs.Capsule, why string, err error) {
	c.files, c.described = about.Conversation, about.Protocol == "acp"
	if c.cfg.Record.Attempt < 2 && !c.Bound() {
		return nil, "", nil
	}
	lost := ""
	if c.cfg.Lost {
		lost = "no turn of an earlier attempt was kept"
	}
	if !about.Conversation.Known() {
		if lost != "" || c.Bound() {
			lost = "agent " + about.Name + " cannot continue a conversation on another worker"
		}
		return nil, lost, c.unbound(lost)
	}
	list, err := c.cfg.Store.Capsules(ctx, c.cfg.Record.ID)
	if err != nil {
		return nil, "", verdict.Failed(jobs.StoreFailed, "look for a capsule", err)
	}
	if found = c.begins(list); found == nil {
		return nil, lost, c.unbound("its capsule is not kept any more")
	}
	err = c.cfg.Store.Usable(ctx, *found, c.cfg.Record)
	if unfit, ok := errors.AsType[*artifact.CapsuleError](err); ok {
		return nil, unfit.Error(), c.unbound(unfit.Error())
	}
	return found, "", verdict.Failed(jobs.StoreFailed, "read the capsule", err)
}

// begins chooses among the capsules of the job's attempts: the last one's, if it
// continues, else the one that the job is bound to.
func (c *Conversation) begins(list []jobs.Capsule) *jobs.Capsule {
	var last, base *jobs.Capsule
	for i, kept := range list {
		switch {
		case kept.Epoch >= c.cfg.Epoch:
		case c.Bound() && kept.Epoch == c.cfg.Record.Resume:
			base = &list[i]
		case kept.Epoch > max(c.cfg.Record.Since, c.cfg.Record.Resume):
			last = &list[i]
		}
	}
	if last != nil && last.Why.Continues() {
		return last
	}
	return base
}

// Bound reports whether the job must continue a conversation or fail.
func (c *Conversation) Bound() bool { return c.cfg.Record.Resume > 0 || c.cfg.Job.Fork != "" }

// forks reports whether the attempt begins at the fork of the job.
func (c *Conversation) forks() bool {
	return c.begun != nil && c.begun.Epoch == 0
}

// unbound is the end of a job that must continue a conversation and cannot.
func (c *Conversation) unbound(why string) error {
	if !c.Bound() {
		return nil
	}
	return verdict.Ended(jobs.NotResumed, "the conversation cannot be continued: %s", why)
}

// Resume puts the conversation into the agent's home, and reports to the session that
// the attempt continues it. It returns false if the attempt begins anew, and the reason
// if that may be a surprise.
func (c *Conversation) Resume(ctx context.Context, home string, from *jobs.Capsule, why string) (resumed bool, reason string, err error) {
	c.home = home
	if from != nil && home == "" {
		from, why = nil, "without a jail an agent finds its conversation elsewhere"
	}
	if from != nil {
		content, err := c.cfg.Store.Get(ctx, from.Job, from.Epoch, from.Home.Name)
		if err != nil {
			return false, "", verdict.Failed(jobs.StoreFailed, "read the capsule", err)
		}
		err = errors.Join(c.talk(from.Conversation).Unpack(content), content.Close())
		if err != nil {
			from, why = nil, "the capsule is broken: "+err.Error()
		}
	}
	if from == nil {
		return false, why, c.unbound(why)
	}
	c.Questions.bring(from)
	c.begun, c.turns = from, from.Turn
	c.Prompts.begin(from.Heard)
	c.cfg.Log.Info("resumed", "epoch", from.Epoch, "turn", from.Turn)
	d := event.SessionContinued{How: "resumed", Epoch: from.Epoch, Conversation: from.Conversation, Turn: from.Turn}
	if c.forks() {
		d.How, d.From = "forked", c.cfg.Job.Fork
	}
	c.cfg.Tell(event.Make(d))
	return true, "", nil
}

// Anew drops the conversation that the attempt would have continued, and reports the
// reason to the session, if there is one. Epoch is that of the job's salvage; 0: it has
// none.
func (c *Conversation) Anew(why string, epoch uint64) {
	c.Questions.bring(nil)
	c.begun, c.turns = nil, 0
	c.Prompts.begin(nil)
	if why == "" {
		return
	}
	c.cfg.Log.Info("begins anew", "why", why)
	c.cfg.Tell(event.Make(event.SessionContinued{How: "anew", Why: c.clean(why), Epoch: epoch}))
}

// Refused reports whether an agent at this position of its first run has not continued
// its conversation: it has begun no turn.
func (c *Conversation) Refused(at Position) bool { return c.begun != nil && at.Turn == c.begun.Turn }
