package pool

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// Within bounds ctx when a limit was given. The error that it ends with is
// the one that a user should see.
func Within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit,
		cli.Fail(cli.ExitTimeout, "the jobs continue; penstock wait ID waits again", "not finished after %v", limit))
}

// Cause returns why ctx ended, where it has, instead of err.
func Cause(ctx context.Context, err error) error {
	if over := context.Cause(ctx); over != nil {
		return over
	}
	return err
}
