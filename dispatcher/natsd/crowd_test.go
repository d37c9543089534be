package natsd_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/sandbox/slowtest"
)

// Workers with credentials may be notified as one of a group: of what enters a lane, which the
// pool's account says, and of what a worker gives back.
func TestWorkersAreNotifiedAsOneOfAGroup(t *testing.T) {
	eachBus(t, func(t *testing.T, b *bus) {
		heard := make(chan *nats.Msg, 100)
		denied := make(chan error, 10)
		var workers []*nats.Conn
		for _, name := range []string{"worker-one", "worker-other", "worker-one"} {
			nc := b.connect(name, denied)
			if _, err := nc.ChanQueueSubscribe("penstock.v1.wake.default.>", "group", heard); err != nil {
				t.Fatal(err)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			workers = append(workers, nc)
		}
		const times = 10
		for range times {
			jobstest.Submit(t, b.pool.queue, jobstest.Job())
			if err := workers[0].Publish("penstock.v1.wake.default.p1.again", nil); err != nil {
				t.Fatal(err)
			}
		}
		for n := range 2 * times {
			select {
			case <-heard:
			case err := <-denied:
				t.Fatal(err)
			case <-time.After(slowtest.Limit(10 * time.Second)):
				t.Fatalf("%d of %d notifications", n, 2*times)
			}
		}
		time.Sleep(50 * time.Millisecond)
		if n := len(heard); n > 0 {
			t.Errorf("%d more notifications than there were: more than one of the group has heard some", n)
		}
	})
}
