package worker

import (
	"context"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/gate"
)

// gate serves the way out of the jail until ctx ends, and ends the attempt
// when its budget is spent. What went through is counted here, because the
// agent's own numbers are only what it says.
func (r *agentRun) gate(ctx context.Context, listeners []net.Listener) error {
	if r.way == nil || len(listeners) == 0 {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.metered = gate.NewSession(r.rec.ID, gate.Limits{Tokens: r.job.Budget.Tokens, USD: r.job.Budget.USD})
	var budget errgroup.Group
	budget.Go(func() error {
		select {
		case <-ctx.Done():
		case <-r.metered.Spent():
			r.end(ended(jobs.BudgetExceeded, "the budget is spent: %d tokens, %.2f USD at the most", r.job.Budget.Tokens, r.job.Budget.USD))
		}
		return nil
	})
	err := r.way.Serve(ctx, r.metered, listeners[0])
	stop()
	_ = budget.Wait() // it returns nothing but nil
	return err
}

// sum adds what the agent used to the result: as the gate counted it, or as
// the agent reports it where nothing went through the gate.
func (r *agentRun) sum() {
	total := r.decoder.Total()
	usage, model := total.Usage, total.Model
	if r.metered != nil {
		m := r.metered.Meter()
		if m.Calls > 0 {
			usage, model = m.Usage, m.Model
		}
		for range m.Limited {
			if r.cfg.Hooks.Limited != nil {
				r.cfg.Hooks.Limited(r.rec)
			}
		}
	}
	r.result.Usage = r.result.Usage.Add(usage)
	r.result.CostUSD += total.CostUSD
	if model != "" {
		r.result.Model = model
	}
}
