// Package pause waits for a while, or until a context ends.
package pause

import (
	"context"
	"time"
)

// For waits for d and reports whether ctx lived that long. Where ctx ends first, it
// returns at once.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
