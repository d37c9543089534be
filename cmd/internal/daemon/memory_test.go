package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A service gives back what a load has left, and what pools keep of it, when it rests, and not
// while it works.
func TestAServiceThatRestsGivesMemoryBack(t *testing.T) {
	const size, n = 1 << 20, 100
	var kept sync.Pool
	load := func() {
		var all [][]byte
		for range n {
			b := make([]byte, size)
			for i := 0; i < size; i += 4096 {
				b[i] = 1
			}
			all = append(all, b)
		}
		for _, b := range all {
			kept.Put(&b)
		}
	}
	load()
	most := taken()
	if most < n*size {
		t.Fatalf("%d bytes after %d were allocated", most, n*size)
	}
	ctx, stop := context.WithCancel(t.Context())
	var rest atomic.Bool
	var busy, done sync.WaitGroup
	busy.Go(func() {
		for !rest.Load() { // it works
		}
	})
	done.Go(func() { giveBack(ctx, 200*time.Millisecond) })
	time.Sleep(time.Second)
	if now := taken(); now < most-n*size/2 {
		t.Errorf("a service that works went from %d to %d bytes", most, now)
	}
	rest.Store(true)
	busy.Wait()
	waitFor(t, "it gives memory back", func() bool { return taken() < most-n*size*8/10 })
	stop()
	done.Wait()
}
