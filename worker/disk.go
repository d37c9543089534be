package worker

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs/pause"
)

// How often the disk is looked at, and how often the cache is searched for
// what may go while the disk is low.
const (
	lookEvery  = time.Second
	evictEvery = time.Minute
)

// watchDisk looks at the disk until ctx ends.
func (w *Worker) watchDisk(ctx context.Context) {
	evicted := time.Now()
	for pause.For(ctx, lookEvery) {
		evict := w.admission.State().Low == nil || time.Since(evicted) >= evictEvery
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
	case !w.admission.SetLow(low):
	case low != nil:
		w.log.Warn("no jobs are claimed until the disk has room; free some, or set a smaller worker.reserve", "err", low)
	default:
		w.log.Warn("the disk has room; jobs are claimed again")
	}
}

// measure looks at the disk and says why no job may be claimed, if so.
func (w *Worker) measure() (Disk, error) {
	disk, err := w.cfg.Reserve.Look()
	switch {
	case err != nil:
		return disk, err
	case w.admission.State().Low != nil:
		return disk, disk.StillLow()
	}
	return disk, disk.Low()
}
