package doctorcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs"
)

// checkRecords compares the records of a pool that runs with what else is known
// of its jobs. Where none runs, serve looks when it starts.
func checkRecords(ctx context.Context, shell cli.Shell) []Finding {
	if pool.OverHTTP(shell.Config) {
		return nil // which tells of jobs, and not how they are kept
	}
	if shell.Config.Server == "" {
		if _, err := natsd.Find(pool.StoreDir(shell)); err != nil {
			return nil
		}
	}
	f := Finding{Check: "records", Status: "ok", Detail: "they agree with the sessions and results"}
	p, err := pool.Open(ctx, shell, "doctor", pool.Hooks{})
	if err == nil {
		lost, auditErr := p.Dispatcher.Audit(ctx, false)
		if len(lost) > 0 {
			f.Status, f.Detail = "weak", fmt.Sprintf("%d lost their last update: %s", len(lost), lost[0])
			f.Price = "the broker's store has lost acknowledged writes"
			f.Fix = "a dispatcher repairs them when it becomes the leader, and every hour: run penstock serve, then check the broker's disk"
		}
		err = errors.Join(auditErr, p.Close())
	}
	switch {
	case errors.Is(err, jobs.ErrForbidden):
		return nil // a worker's credential does not list records
	case err != nil:
		f.Status, f.Detail, f.Fix = "note", "they cannot be read: "+err.Error(), "check that the broker runs, and the credential"
	}
	return []Finding{f}
}
