package worker

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/receipt"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// settle writes the verdict: events first, then the result, then the record,
// and only then the acknowledgement. A lost lease ends all of it.
func (a *attempt) settle(ctx context.Context, v jobs.Ended) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	began := time.Now()
	err := a.publish(ctx, v)
	a.of.times.stage("publish", began)
	switch {
	case errors.Is(err, jobs.ErrFenced):
		a.of.log.Warn("lease lost; the job continues elsewhere")
		if a.of.cfg.Hooks.Fenced != nil {
			a.of.cfg.Hooks.Fenced(a.rec)
		}
	case err != nil && a.rec.State == jobs.Executing:
		a.of.log.Error("verdict lost; the job will be attempted again", "outcome", v.Outcome, "reason", v.Reason, "err", err)
	default:
		if err != nil {
			a.of.log.Warn("settled; the next claimer of the job completes the remaining steps", "err", err)
		}
		a.of.log.Info("settled", "state", a.rec.State, "outcome", a.rec.Outcome, "reason", a.rec.Reason, "took", time.Since(a.of.began))
		if a.of.cfg.Hooks.Settled != nil {
			a.of.cfg.Hooks.Settled(a.rec, a.of.out.Result.Now())
		}
	}
}

func (a *attempt) publish(ctx context.Context, v jobs.Ended) error {
	v = verdict.UnlessLost(v, a.of.events.Close(ctx))
	if a.runs.parked != nil && v.Outcome == "" {
		var err error
		if v, err = a.park(ctx); v.Outcome == "" {
			return err
		}
	}
	if v.Reason == jobs.LeaseLost {
		return a.surrender(ctx, v)
	}
	v.Message = a.of.clean(v.Message) // it may quote the agent, as events do
	v = verdict.UnlessLost(v, a.of.out.End(ctx, v, a.chain()))
	if provider := jobs.Reasons[v.Reason].Fault == jobs.FaultProvider; provider && v.Wait == 0 && !a.runs.again.IsZero() {
		v.Wait = time.Until(a.runs.again)
	}
	var err error
	a.rec, err = a.of.claim.Settle(ctx, v, a.announce)
	return err
}

// chain is over the events of the attempt; without any where its log was not opened.
func (a *attempt) chain() receipt.Chain {
	if a.of.writer == nil {
		return receipt.Chain{}
	}
	return a.of.writer.Chain()
}

// surrender hands back a job whose lease could not be renewed, where nobody has
// taken it over yet: it was the broker that was away, and the next one to claim
// must not take this worker for dead. It always returns [jobs.ErrFenced].
func (a *attempt) surrender(ctx context.Context, v jobs.Ended) error {
	ctx, cancel := context.WithTimeout(ctx, surrenderLimit)
	defer cancel()
	v.Message = a.of.clean(v.Message)
	// The write is refused unless the record is as this attempt has left it.
	var err error
	if a.rec, err = a.of.claim.Settle(ctx, v, a.announce); err == nil {
		a.of.log.Info("handed back", "state", a.rec.State)
	}
	return jobs.ErrFenced
}

// announce tells the session how the attempt ended.
func (a *attempt) announce(ctx context.Context, rec jobs.Record) error {
	if rec.State == jobs.Finished {
		return a.of.cfg.Log.Finish(ctx, rec, a.of.out.Result.Settled(rec))
	}
	if a.of.writer == nil {
		return nil
	}
	return a.of.writer.Append(ctx, event.New(event.JobRequeued{
		Reason: rec.Reason, Message: rec.Message, State: rec.State, NotBefore: rec.NotBefore,
	}))
}
