package pool

import (
	"context"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
)

// CheckServed refuses to wait for a job that will never run: if this command had to open the
// data directory's broker itself, no pool is running.
func CheckServed(p *Pool, rec jobs.Record) error {
	if !p.Own() || rec.State == jobs.Finished {
		return nil
	}
	return cli.Fail(cli.ExitUnreachable, "penstock serve --slots 2 runs one", "no pool runs on this data directory, so job %s stays %s", rec.ID, rec.State)
}

// WithJob opens the pool, finds a job by its id or the beginning of it, and
// closes the pool again.
func WithJob(ctx context.Context, shell cli.Shell, id string, fn func(context.Context, *Pool, jobs.Record) error) error {
	return With(ctx, shell, "read", func(p *Pool) error {
		rec, err := p.Client.Get(ctx, id)
		if err != nil {
			return cli.NotFound(fmt.Errorf("job %s: %w", id, err), "penstock job ls lists the jobs that are kept")
		}
		return fn(ctx, p, rec)
	})
}
