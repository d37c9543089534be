package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

const (
	rests = 0.05     // share of a processor that a service takes at most while it rests
	after = 3        // collections after work: caches may still be in use at the first ones
	worth = 16 << 20 // more bytes than before, which are worth a collection at any time of rest
)

// giveBack gives memory that the process no longer uses back to the host whenever the service
// rests, until ctx ends; it looks every so often whether it does. Go keeps as much again as is in
// use, and what the broker has read for a load counts as used for a while after it. To collect
// garbage more often would cost processor time all the time.
func giveBack(ctx context.Context, every time.Duration) {
	look := time.NewTicker(every)
	defer look.Stop()
	left, low := after, uint64(0) // collections, and bytes after the last one
	before := processorTime()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := processorTime()
		works := float64(now-before) >= rests*float64(every)
		before = now
		switch {
		case works:
			left = after
		case left > 0 || taken() >= low+worth:
			left = max(0, left-1)
			runtime.GC() // what pools keep is garbage after the second one
			debug.FreeOSMemory()
			low = taken()
		}
	}
}

// taken is how many bytes Go's runtime has from the system.
func taken() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

// processorTime is what the process has used.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails for another argument only
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
