package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

// A memory is what the process takes of the host's memory, and how it gives back what it no
// longer uses. Go keeps as much again as is in use, and what the broker has read for a load
// counts as used for a while after it. To collect garbage more often would cost processor time
// all the time, so it is done when the service rests.
type memory struct {
	every time.Duration // how often to look whether the service rests
	left  int           // how often to collect, since the last time that it worked
	low   uint64        // bytes after the last time
}

const (
	rests = 0.05     // share of a processor that a service takes at most while it rests
	after = 3        // collections after work: caches may still be in use at the first ones
	worth = 16 << 20 // more bytes than before, which are worth a collection at any time of rest
)

// giveBack gives memory back whenever the service rests, until ctx ends.
func (m *memory) giveBack(ctx context.Context) {
	look := time.NewTicker(m.every)
	defer look.Stop()
	m.left = after
	before := processorTime()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := processorTime()
		if float64(now-before) < rests*float64(m.every) {
			m.collect()
		} else {
			m.left = after
		}
		before = now
	}
}

func (m *memory) collect() {
	if m.left == 0 && taken() < m.low+worth {
		return
	}
	m.left = max(0, m.left-1)
	runtime.GC() // what pools keep is garbage after the second one
	debug.FreeOSMemory()
	m.low = taken()
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
