package worker

import (
	"cmp"
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/jails"
)

// agentRuns are what the runs of an agent within one attempt share: the
// first, and one more for each check that went back to it.
type agentRuns struct {
	round  int                   // how often a check went back
	failed *jails.CommandError   // the check that did last
	resume string                // what the agent calls the conversation; empty: it has no name
	meter  *gate.Session         // what went through the gate; nil: there is none
	total  agent.Total           // what the agent itself told, of all runs
	at     conversation.Position // how far it had come when its last run ended
}

// work runs the job's setup, its agent and its checks, all in the same
// workspace. A check that fails goes back to the agent up to check_rounds
// times. The agent has ended by then, because a check must not see a workspace
// that somebody writes in.
func (a *attempt) work(ctx context.Context, in confine.Jail, adapter agent.Adapter) error {
	defer a.watchSize(ctx)()
	var err error
	if a.depends, err = dependencies(ctx, a.cfg, a.job.DependsOn); err != nil {
		return err
	}
	if err := a.setup(ctx, in); err != nil {
		return err
	}
	defer a.sum()
	for {
		if err := a.converse(ctx, in, adapter); err != nil {
			return err
		}
		err := a.jails.Run(ctx, in, jobs.CheckFailed, a.job.Check)
		failed, again := errors.AsType[*jails.CommandError](err)
		if !again || a.talk.round == a.job.CheckRounds {
			return err
		}
		a.talk.round, a.talk.failed = a.talk.round+1, failed
		a.events.Put(event.Make(event.CheckReturned{Check: failed.Ended.Check, Round: a.talk.round, Of: a.job.CheckRounds}))
	}
}

// converse runs the agent once. One that does not go on with an earlier
// conversation begins anew, in the workspace as it is, unless it is there to go on.
func (a *attempt) converse(ctx context.Context, in confine.Jail, adapter agent.Adapter) error {
	err := a.agent(ctx, in, adapter)
	if a.didNotResume(err) && !a.conversation.Bound() {
		if err := a.anew(ctx, "the agent did not resume the conversation: "+err.Error()); err != nil {
			return err
		}
		err = a.agent(ctx, in, adapter)
	}
	if err == nil && len(a.job.Check) > 0 {
		// The checks may take long, and what the agent said is complete.
		at := a.talk.at
		at.Conversation = a.talk.resume
		a.conversation.Store(ctx, at, "", a.snapshot)
	}
	return err
}

// heard notes what one run of the agent told.
func (c *agentRuns) heard(run agent.Total) {
	c.resume = run.Session
	c.total.Usage = c.total.Usage.Add(run.Usage)
	c.total.CostUSD = jobs.AddUSD(c.total.CostUSD, run.CostUSD)
	c.total.Model = run.Model
}

// sum puts what the agent used into the result.
func (a *attempt) sum() {
	a.count()
	if a.talk.meter != nil && a.cfg.Hooks.Limited != nil {
		for range a.talk.meter.Meter().Limited {
			a.cfg.Hooks.Limited(a.rec)
		}
	}
}

// count tells what the agent used by now.
func (a *attempt) count() {
	spent, model := a.talk.spent(agent.Total{})
	a.claim.Spend(spent)
	a.out.Result.Spend(spent, model)
}

// spent is what the attempt has used, with a run that is not over: as the gate
// counted it, or as the agent reports it where nothing went through the gate.
// What that cost only the agent knows, unless the gate has prices.
func (c *agentRuns) spent(run agent.Total) (jobs.Spent, string) {
	s := jobs.Spent{Usage: c.total.Usage.Add(run.Usage), CostUSD: jobs.AddUSD(c.total.CostUSD, run.CostUSD)}
	model := cmp.Or(run.Model, c.total.Model)
	if c.meter != nil {
		if m := c.meter.Meter(); m.Calls > 0 {
			s.Usage, model = m.Usage, m.Model
			s.CostUSD = cmp.Or(s.CostUSD, m.CostUSD)
		}
	}
	return s, model
}
