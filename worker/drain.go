package worker

import (
	"context"
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/why"
)

// setDrain has the worker claim nothing more, or claim again with nil. What it runs goes
// on. The end of Run's context and requests of the pool come here alike.
func (w *Worker) setDrain(drain *why.Drain) {
	switch {
	case !w.admission.SetDrain(drain):
	case drain == nil:
		w.log.Info("drain ended; jobs are claimed again")
	default:
		w.log.Info("drain began; no jobs are claimed", "by", drain.By)
	}
}

// readDrain does what the pool has asked of this worker last. While the broker does not
// answer, and where it has forgotten the request, everything stays as it is.
func (w *Worker) readDrain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, presence.Every)
	defer cancel()
	drain, asked, err := w.cfg.Queue.Workers().Asked(ctx, w.cfg.Name, w.started)
	switch {
	case errors.Is(err, jobs.ErrForbidden):
		w.forbidden.Do(func() {
			w.log.Warn("this worker cannot be drained from afar: its role on the bus is of an earlier release", "err", err)
		})
	case err == nil && asked:
		w.setDrain(drain)
	}
}
