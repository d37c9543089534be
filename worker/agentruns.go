package worker

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/agentrun"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/conversation"
	"github.com/penstock-run/penstock/worker/internal/jails"
	"github.com/penstock-run/penstock/worker/internal/preparation"
	"github.com/penstock-run/penstock/worker/internal/sharedbudget"
	"github.com/penstock-run/penstock/worker/internal/spending"
	"github.com/penstock-run/penstock/worker/internal/testreports"
	"github.com/penstock-run/penstock/worker/workspace"
)

// agentRuns are the runs of the agent in one attempt: the first, one more for each check
// that went back to it, and the one that writes about the change.
type agentRuns struct {
	of *claimed
	// current is told which run takes control messages now; nil: none does.
	current func(*agentrun.Run)
	used    spending.Spending
	shared  sharedbudget.Set // of the budgets that the job shares

	// What the runs begin from.
	plan    *preparation.Plan
	pinned  agent.Program // of the version that the job names; without one, empty
	space   *workspace.Workspace
	in      *confine.Jail
	reports *testreports.Reader // of the checks
	notice  string              // what the agent must know of its workspace; "" if that is new
	depends []agent.Dependency  // on which the job depends

	round     int                   // how often a check went back
	failed    *jails.CommandError   // the check that did last
	resume    string                // what the agent calls the conversation; empty: it has no name
	at        conversation.Position // how far it had come when its last run ended
	terminals int                   // of the runs that are over
	parked    *agentrun.Parking     // how the attempt ends with its questions open; nil: it does not
	// again is when the model API said to come again, if the last run ended for that;
	// zero: it did not say.
	again time.Time
}

// untilChecked runs the agent and the checks. A check that fails goes back to the agent up
// to check_rounds times. The agent has ended by then, because a check must not see a
// workspace that somebody writes in.
func (r *agentRuns) untilChecked(ctx context.Context) error {
	defer r.sum()
	for {
		if err := r.converse(ctx); err != nil {
			return err
		}
		err := r.of.jails.Run(ctx, r.in, jobs.CheckFailed, r.plan.Job.Check, r.reports.Begin)
		failed, again := errors.AsType[*jails.CommandError](err)
		if !again || r.round == r.plan.Job.CheckRounds {
			return err
		}
		r.round, r.failed = r.round+1, failed
		r.of.events.Put(event.Make(event.CheckReturned{Check: failed.Ended.Check, Round: r.round, Of: r.plan.Job.CheckRounds}))
	}
}

// converse runs the agent once. One that does not go on with an earlier
// conversation begins anew, in the workspace as it is, unless it is there to go on.
func (r *agentRuns) converse(ctx context.Context) error {
	err := r.agent(ctx)
	if r.didNotResume(err) && !r.of.conversation.Bound() {
		if err := r.anew(ctx, "the agent did not resume the conversation: "+err.Error()); err != nil {
			return err
		}
		err = r.agent(ctx)
	}
	if err == nil && len(r.plan.Job.Check) > 0 {
		// The checks may take long, and what the agent said is complete.
		at := r.at
		at.Conversation = r.resume
		r.of.conversation.Store(ctx, at, "", r.snapshot)
	}
	return err
}

// sum puts what the agent used into the result.
func (r *agentRuns) sum() {
	r.count()
	if meter := r.used.Meter(); meter != nil && r.of.cfg.Hooks.Limited != nil {
		for range meter.Meter().Limited {
			r.of.cfg.Hooks.Limited(r.of.rec)
		}
	}
}

// count tells what the agent used by now.
func (r *agentRuns) count() {
	spent, model := r.used.Spent(agent.Total{})
	r.of.claim.Spend(spent)
	r.of.out.Result.Spend(spent, model)
}
