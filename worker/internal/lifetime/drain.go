package lifetime

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Drain returns a context that outlives ctx by limit and then ends with
// jobs.ErrDraining.
func Drain(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if Pause(work, limit) {
			cancel(jobs.ErrDraining)
		}
	})
	return work, func() { stop(); cancel(nil) }
}

// Pause waits for d and reports whether ctx lived that long.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
