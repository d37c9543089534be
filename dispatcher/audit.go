package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// Audit compares the records with the sessions and the results, and returns what
// the records have lost. With fix it repairs them, and no job that has a result
// runs again.
func (d *Dispatcher) Audit(ctx context.Context, fix bool) ([]queue.Loss, error) {
	return d.cfg.Queue.Audit(ctx, fix, d.cfg.Log.Last, d.cfg.Store.LastResult)
}

// relearn repairs the records before any job is admitted by them.
func (d *Dispatcher) relearn(ctx context.Context) {
	for ctx.Err() == nil {
		lost, err := d.Audit(ctx, true)
		if len(lost) > 0 {
			d.log.Error("the broker's store has lost its last writes: records are older than their sessions",
				"jobs", len(lost), "hint", "check the broker's disk; the records are repaired, and finished jobs do not run again")
		}
		for _, loss := range lost {
			d.log.Warn("record was lost", "job", loss.Job, "was", loss.Was, "is", loss.Is, "outcome", loss.Result, "known_by", loss.From, "repaired", loss.Fixed)
		}
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			d.log.Error("compare the records with the sessions", "err", err)
		}
		if !errors.Is(err, jobs.ErrUnavailable) {
			return // what is lost must not keep all others
		}
		pause(ctx, time.Second)
	}
}
