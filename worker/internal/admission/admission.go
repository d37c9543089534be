// Package admission decides whether the slots of a worker may claim jobs.
//
//	room on the disk, no drain ──▶ slots wait for jobs ──▶ each claims one, and leaves
//	disk low, or drain         ──▶ slots stop waiting  ──▶ settled
//
// It promises that no slot claims a job behind a state that is settled and drains: then
// the jobs that the worker has only become fewer.
package admission

import (
	"context"
	"sync"

	"github.com/penstock-run/penstock/jobs/why"
)

// An Admission says whether the slots may claim, and how many of them do. Its methods may
// be called from any goroutine.
type Admission struct {
	draining func(*why.Drain) // observes drains; may be nil

	mu       sync.Mutex
	low      error         // why the disk takes no jobs
	drain    *why.Drain    // the worker was told to claim nothing more
	claiming int           // slots that wait for a job
	changed  chan struct{} // closed when one of the first two changes, and when no slot waits any more
}

// New returns an admission that lets the slots claim. Draining, which may be nil, is
// called when a drain has begun, and with nil when it has ended.
func New(draining func(*why.Drain)) *Admission {
	return &Admission{draining: draining, changed: make(chan struct{})}
}

// A State is what an admission says at a time.
type State struct {
	Changed <-chan struct{} // closed when the state is out of date
	Low     error           // why the disk takes no jobs
	Drain   *why.Drain      // the worker was told to claim nothing more
	// Settled: no slot waits for a job. Without a drain it says nothing.
	Settled bool
}

// State returns the state of now.
func (a *Admission) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{a.changed, a.low, a.drain, a.claiming == 0}
}

// SetLow says why the disk takes no jobs, and reports whether that began or ended.
func (a *Admission) SetLow(low error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	turned := (a.low == nil) != (low == nil)
	a.low = low
	if turned {
		a.announce()
	}
	return turned
}

// SetDrain says that the worker drains, or no longer does, and reports whether that began
// or ended. A drain that ends the worker stays.
func (a *Admission) SetDrain(drain *why.Drain) bool {
	turned := a.turnDrain(drain)
	// Until the newest state was reported: a request of the pool and the end of the
	// worker may come at the same time.
	for report := turned && a.draining != nil; report; {
		now := a.State().Drain
		a.draining(now)
		report = a.State().Drain != now
	}
	return turned
}

func (a *Admission) turnDrain(drain *why.Drain) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.drain != nil && a.drain.Ends {
		return false
	}
	turned := (a.drain == nil) != (drain == nil)
	if turned || drain != nil && drain.Ends {
		a.drain = drain
		a.announce()
	}
	return turned
}

// Again has slots that wait for a job begin to wait anew: what they ask for has changed.
func (a *Admission) Again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announce()
}

// announce is called with the lock held.
func (a *Admission) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// enter counts a slot among those that wait for a job, unless none may.
func (a *Admission) enter() (changed <-chan struct{}, entered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	entered = a.low == nil && a.drain == nil
	if entered {
		a.claiming++
	}
	return a.changed, entered
}

// leave counts a slot out. When it was the last one of a worker that drains, the pool is
// to hear of it.
func (a *Admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.claiming--; a.claiming == 0 && a.drain != nil {
		a.announce()
	}
}

// Wait waits until jobs may be claimed. The context that it returns ends with ctx, and
// when they may not be any more. The caller calls done when it waits for no job any
// more, and has counted the one that it got.
func (a *Admission) Wait(ctx context.Context) (admitted context.Context, done func()) {
	changed, entered := a.enter()
	for !entered {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx, func() {}
		}
		changed, entered = a.enter()
	}
	ctx, cancel := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-watched; a.leave() }
}
