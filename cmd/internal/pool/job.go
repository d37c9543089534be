package pool

import (
	"context"
	"errors"
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
	p, err := Open(ctx, shell, "read", Hooks{})
	if err != nil {
		return err
	}
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		err = fmt.Errorf("job %s: %w", id, err)
		if errors.Is(err, jobs.ErrNotFound) {
			err = cli.Fail(cli.ExitNotFound, "penstock job ls lists the jobs that are kept", "%w", err)
		}
	} else {
		err = fn(ctx, p, rec)
	}
	return errors.Join(err, p.Close())
}
