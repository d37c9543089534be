package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-run/penstock/jobs/queue"
)

// Claims of a connection send their heartbeats at four moments in a third of the lease, whenever
// they were made, and never later than after that third.
func TestHeartbeatsComeTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const third = 4 * time.Second
		opened, moments := time.Now(), map[time.Duration]bool{}
		for time.Since(opened) < 2*third {
			time.Sleep(7 * time.Millisecond)
			wait := queue.UntilBeat(opened, 3*third)
			if wait <= third*3/4 || wait > third {
				t.Fatalf("after %s: got %s", time.Since(opened), wait)
			}
			moments[time.Since(opened)+wait] = true
		}
		if n := len(moments); n > 9 {
			t.Errorf("%d moments in %s", n, 2*third)
		}
	})
}
