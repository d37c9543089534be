package agentrun

import (
	"context"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// serveModel serves the way out of the jail until ctx ends, and ends the attempt
// when its budget is spent. What went through is counted here, because the
// agent's own numbers are only what it says.
func (r *Run) serveModel(ctx context.Context, l net.Listener) error {
	if r.cfg.Way == nil || l == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var budget errgroup.Group
	budget.Go(func() error {
		select {
		case <-ctx.Done():
		case <-r.cfg.Meter.Spent():
			r.cfg.End(verdict.Ended(jobs.BudgetExceeded, "the budget is spent: %d tokens, %.2f USD at the most", r.cfg.Job.Budget.Tokens, r.cfg.Job.Budget.USD))
		}
		return nil
	})
	err := r.cfg.Way.Serve(ctx, r.cfg.Meter, l)
	stop()
	_ = budget.Wait() // it returns nothing but nil
	return err
}
