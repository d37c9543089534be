package wire

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/penstock-run/penstock/jobs"

	"github.com/nats-io/nats.go"
)

// However many parts share a connection, and however they begin to listen, each
// hears what is refused to it.
func TestAllPartsOfAConnectionHearRefusals(t *testing.T) {
	for range 50 {
		nc := &nats.Conn{}
		var parts [8]refusals
		var listen sync.WaitGroup
		for i := range parts {
			parts[i].waiting = map[string]map[int]context.CancelCauseFunc{}
			listen.Go(func() { parts[i].listen(nc) })
		}
		listen.Wait()
		var asked [len(parts)]context.Context
		for i := range parts {
			ctx, done := parts[i].watch(t.Context(), "x")
			defer done()
			asked[i] = ctx
		}
		nc.ErrorHandler()(nc, nil, fmt.Errorf(`%w: Permissions Violation for Publish to "x"`, nats.ErrPermissionViolation))
		for i, ctx := range asked {
			if !errors.Is(context.Cause(ctx), jobs.ErrForbidden) {
				t.Fatalf("part %d of %d has not heard of the refusal", i, len(parts))
			}
		}
	}
}
