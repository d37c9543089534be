package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, jobstest.ServersOwn()...)
}

func TestDrainOutlivesItsContextByTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		work, cancel := drain(ctx, time.Minute)
		defer cancel()
		stop()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if work.Err() != nil {
			t.Fatalf("ended after 59 s: %v", context.Cause(work))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := context.Cause(work); !errors.Is(got, jobs.ErrDraining) {
			t.Errorf("cause: got %v, want %v", got, jobs.ErrDraining)
		}
	})
}
