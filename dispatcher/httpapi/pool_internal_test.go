package httpapi

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// The demand of a queue is no more than its cap allows and no less than what runs, which
// no program that scales is to take away.
func TestDemand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		queue operation.Queue
		want  int
	}{
		{operation.Queue{Pending: 3, Executing: 5, Delayed: 2, Waiting: 9, Finished: 9}, 8},
		{operation.Queue{Pending: 3, Executing: 5, Cap: 6}, 6},
		{operation.Queue{Pending: 3, Executing: 5, Cap: 4}, 5},
		{operation.Queue{Pending: 3, Executing: 5, Cap: 10}, 8},
		{operation.Queue{Pending: 3, Executing: 5, Paused: &jobs.Hold{}}, 5},
	} {
		if got := scaleOf(c.queue).Demand; got != c.want {
			t.Errorf("%+v: demand %d, want %d", c.queue, got, c.want)
		}
	}
}
