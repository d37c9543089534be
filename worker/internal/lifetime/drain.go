package lifetime

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/pause"
)

// Drain returns a context that outlives ctx by limit and then ends with
// jobs.ErrDraining.
func Drain(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if pause.For(work, limit) {
			cancel(jobs.ErrDraining)
		}
	})
	return work, func() { stop(); cancel(nil) }
}
