package agentrun

import (
	"context"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/worker/internal/sharedlimits"
	"github.com/penstock-run/penstock/worker/internal/spending"
)

// serveModel serves the way out of the jail until ctx ends, and ends the attempt
// when its budget is spent, or one that it shares, or its calls would wait for too long. What went through is counted here, because the
// agent's own numbers are only what it says.
func serveModel(ctx context.Context, cfg Config, l net.Listener) error {
	if cfg.Way == nil || l == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var budget errgroup.Group
	budget.Go(func() error {
		select {
		case <-ctx.Done():
		case <-cfg.Meter.Spent():
			cfg.End(spending.Ended(cfg.Job.Budget, cfg.Meter.Allowed()))
		case <-cfg.Meter.SharedSpent():
			cfg.End(cfg.Exhausted(cfg.Meter.Exhausted()))
		case <-cfg.Meter.Held():
			cfg.End(sharedlimits.Ended(cfg.Meter.Hold(), time.Now()))
		}
		return nil
	})
	err := cfg.Way.Serve(ctx, cfg.Meter, l)
	stop()
	_ = budget.Wait() // it returns nothing but nil
	return err
}
