package worker

import (
	"context"
	"sync"
	"time"
)

// An admission says whether the slots may claim.
type admission struct {
	mu      sync.Mutex
	refused error         // why they may not
	changed chan struct{} // closed when that begins or ends
}

func newAdmission() *admission { return &admission{changed: make(chan struct{})} }

func (a *admission) state() (changed <-chan struct{}, refused error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed, a.refused
}

// set reports whether admission began or ended with it.
func (a *admission) set(refused error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	turned := (a.refused == nil) != (refused == nil)
	a.refused = refused
	if turned {
		close(a.changed)
		a.changed = make(chan struct{})
	}
	return turned
}

// wait waits until jobs may be claimed. The context that it returns ends with
// ctx, and when they may not be any more.
func (a *admission) wait(ctx context.Context) (context.Context, context.CancelFunc) {
	changed, refused := a.state()
	for refused != nil && ctx.Err() == nil {
		select {
		case <-changed:
		case <-ctx.Done():
		}
		changed, refused = a.state()
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-done }
}

// How often the disk is looked at, and how often the cache is searched for
// what may go while the disk is low.
const (
	lookEvery  = time.Second
	evictEvery = time.Minute
)

// watchDisk looks at the disk until ctx ends.
func (w *Worker) watchDisk(ctx context.Context) {
	evicted := time.Now()
	for pause(ctx, lookEvery) {
		_, refused := w.admission.state()
		evict := refused == nil || time.Since(evicted) >= evictEvery
		if evict {
			evicted = time.Now()
		}
		w.lookAtDisk(ctx, evict)
	}
}

// lookAtDisk ends admission while the disk is low, and says so once. With
// evict the cache goes first, of what can be fetched again.
func (w *Worker) lookAtDisk(ctx context.Context, evict bool) {
	if w.cfg.Reserve.Dir == "" {
		return
	}
	disk, low := w.measure()
	if low != nil && evict {
		removed, err := w.cfg.Spaces.Evict(ctx, func() bool { _, low := w.measure(); return low == nil })
		if removed > 0 || err != nil {
			w.log.Warn("evicted from the cache, since the disk is low", "removed", removed, "err", err)
		}
		disk, low = w.measure()
	}
	if w.cfg.Hooks.Disk != nil {
		w.cfg.Hooks.Disk(disk, low)
	}
	// The end is logged at the same level as the beginning, for people who saw the
	// beginning.
	switch {
	case !w.admission.set(low):
	case low != nil:
		w.log.Warn("no jobs are claimed until the disk has room; free some, or set a smaller worker.reserve", "err", low)
	default:
		w.log.Warn("the disk has room; jobs are claimed again")
	}
}

// measure looks at the disk and says why no job may be claimed, if so.
func (w *Worker) measure() (Disk, error) {
	disk, err := w.cfg.Reserve.Look()
	switch _, refused := w.admission.state(); {
	case err != nil:
		return disk, err
	case refused != nil:
		return disk, disk.StillLow()
	}
	return disk, disk.Low()
}
