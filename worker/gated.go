package worker

import (
	"cmp"
	"context"
	"net"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// serveModel serves the way out of the jail until ctx ends, and ends the attempt
// when its budget is spent. What went through is counted here, because the
// agent's own numbers are only what it says.
func (r *agentRun) serveModel(ctx context.Context, l net.Listener) error {
	if r.way == nil || l == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var budget errgroup.Group
	budget.Go(func() error {
		select {
		case <-ctx.Done():
		case <-r.meter.Spent():
			r.end(verdict.Ended(jobs.BudgetExceeded, "the budget is spent: %d tokens, %.2f USD at the most", r.job.Budget.Tokens, r.job.Budget.USD))
		}
		return nil
	})
	err := r.way.Serve(ctx, r.meter, l)
	stop()
	_ = budget.Wait() // it returns nothing but nil
	return err
}

// measure makes the meter of what goes through the gate, where there is none
// yet: the budget is for all runs of the agent together.
func (a *attempt) measure() {
	if a.talk.meter != nil {
		return
	}
	a.talk.meter = gate.NewSession(a.rec.ID, gate.Key(a.tokens.model), gate.Limits{Tokens: a.job.Budget.Tokens, USD: a.job.Budget.USD})
	a.talk.meter.Refused = func(v gate.Violation) {
		a.refused.Note(policy.KindModel, a.redacted(cmp.Or(strings.TrimSpace(v.Method+" "+v.Path), "model API")), a.redacted(v.What))
	}
}

// redacted is what a program inside has chosen, without secrets.
func (a *attempt) redacted(s string) string { return string(a.secrets.Text([]byte(s))) }
