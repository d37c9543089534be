// Package lifetime decides when a worker ends by itself: when it has claimed as many jobs as
// it may, or has had none for too long.
//
//	Take ─▶ a slot waits for a job ─▶ Claimed ─▶ Done ─▶ Take …
//	the last Claimed, or too long without a job ─▶ the worker is told, once
//
// It promises that no more jobs are claimed than may be, however many slots wait.
package lifetime

import (
	"sync"
	"time"
)

// Limits bound the life of a worker. The zero value bounds nothing.
type Limits struct {
	Jobs int           // it may claim this many; 0: any number
	Idle time.Duration // it ends after this long without a job; 0: never
}

// What a worker is told: which limit it has reached.
const (
	Jobs = "max_jobs"
	Idle = "idle_timeout"
)

// A Lifetime counts the jobs of a worker. Its methods may be called from any goroutine.
type Lifetime struct {
	limits Limits

	mu      sync.Mutex
	end     func(reached string) // nil: not begun, or over
	taken   int                  // slots that may claim a job, or have
	claimed int
	busy    int
	idle    *time.Timer // nil: no limit, or not begun
}

// New returns the life of a worker, which begins with Begin.
func New(limits Limits) *Lifetime { return &Lifetime{limits: limits} }

// Begin counts from now on, and calls end, at most once, when a limit is reached.
func (l *Lifetime) Begin(end func(reached string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
	if l.limits.Idle > 0 {
		l.idle = time.AfterFunc(l.limits.Idle, l.expire)
	}
}

// Stop calls nothing any more.
func (l *Lifetime) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = nil
	if l.idle != nil {
		l.idle.Stop()
	}
}

// Take reports whether a slot may wait for one more job.
func (l *Lifetime) Take() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limits.Jobs > 0 && l.taken >= l.limits.Jobs {
		return false
	}
	l.taken++
	return true
}

// Claimed says that a slot, which took its turn, has a job.
func (l *Lifetime) Claimed() {
	if end := l.count(); end != nil {
		end(Jobs)
	}
}

// count returns what to call if the job is the last one.
func (l *Lifetime) count() (end func(string)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
	l.claimed++
	if l.claimed == l.limits.Jobs {
		end, l.end = l.end, nil
	}
	return end
}

// Done says that the job of a slot has ended.
func (l *Lifetime) Done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 && l.idle != nil && l.end != nil {
		l.idle.Reset(l.limits.Idle)
	}
}

func (l *Lifetime) expire() {
	l.mu.Lock()
	end := l.end
	if l.busy > 0 { // Done counts again
		end = nil
	} else {
		l.end = nil
	}
	l.mu.Unlock()
	if end != nil {
		end(Idle)
	}
}
