package worker

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// canPark reports whether the agent's session may be parked: it goes on with its
// conversation afterwards, or it is a program of which the job says that it may
// be run again.
func (r *agentRuns) canPark(about agent.About) bool {
	return r.of.conversation.Kept() || about.Protocol == "command" && r.plan.Job.Ask.ParkAfter > 0
}

// park lets go of the job. It returns how the attempt ends, where it cannot: it
// is lost, or somebody wants it to end.
func (a *attempt) park(ctx context.Context) (jobs.Ended, error) {
	p := a.runs.parked
	p.Question = a.of.clean(p.Question)
	e := event.New(event.JobWaiting{Reason: "question", Asks: p.Asks, Question: p.Question, Until: p.Until})
	// First, so that no record is parked whose session does not say so.
	if err := a.of.append(ctx, e); err != nil {
		return verdict.UnlessLost(jobs.Ended{}, err), nil
	}
	rec, err := a.of.claim.Park(ctx, p.Question, p.Until)
	if errors.Is(err, jobs.ErrCancelled) {
		return jobs.Cancelled.Ended("cancelled"), nil
	}
	if rec.ID != "" {
		a.rec = rec
	}
	return jobs.Ended{}, err
}
