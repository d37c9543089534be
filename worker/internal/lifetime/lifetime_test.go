package lifetime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/lifetime"
)

// However many slots there are, they wait for no more jobs than the worker may claim, and
// the claim of the last one ends the worker.
func TestJobsAreCounted(t *testing.T) {
	t.Parallel()
	var reached []string
	life := lifetime.New(lifetime.Limits{Jobs: 2})
	life.Begin(func(what string) { reached = append(reached, what) })
	for turn, want := range []bool{true, true, false} {
		if got := life.Take(); got != want {
			t.Fatalf("turn %d is given: %v, want %v", turn, got, want)
		}
	}
	life.Claimed()
	life.Done()
	if len(reached) > 0 || life.Take() {
		t.Errorf("after one of two jobs: %v was reached, or there is another turn", reached)
	}
	life.Claimed()
	if len(reached) != 1 || reached[0] != lifetime.Jobs {
		t.Errorf("after the last claim: %v was reached, want %s", reached, lifetime.Jobs)
	}

	free := lifetime.New(lifetime.Limits{})
	free.Begin(func(what string) { t.Errorf("a worker without limits reached %s", what) })
	for range 100 {
		if !free.Take() {
			t.Fatal("a worker without limits has no turns left")
		}
		free.Claimed()
		free.Done()
	}
}

// The time without a job is counted from the start and from the end of the last job, and
// not while one runs.
func TestIdleTimeIsCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reached := make(chan string, 2)
		life := lifetime.New(lifetime.Limits{Idle: time.Minute})
		life.Begin(func(what string) { reached <- what })
		time.Sleep(50 * time.Second)
		life.Claimed()
		life.Claimed()
		life.Done()
		time.Sleep(time.Hour)
		life.Done()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if len(reached) > 0 {
			t.Fatalf("%s was reached while a job ran, or too early", <-reached)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if n := len(reached); n != 1 {
			t.Fatalf("%d limits were reached, want one", n)
		}
		if got := <-reached; got != lifetime.Idle {
			t.Errorf("%s was reached, want %s", got, lifetime.Idle)
		}

		stopped := lifetime.New(lifetime.Limits{Idle: time.Minute})
		stopped.Begin(func(what string) { t.Errorf("after its end, %s was reached", what) })
		stopped.Stop()
		time.Sleep(time.Hour)
	})
}

func TestDrainOutlivesItsContextByTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		work, cancel := lifetime.Drain(ctx, time.Minute)
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
