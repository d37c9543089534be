// Package skew tells how old records are, whatever the broker's clock is set to.
//
// The age of a heartbeat is a difference of two times of the broker's clock,
// which an administrator may set in between. So that no worker loses its job by
// that, and no job waits until the clock is where it was, what the clock says is
// compared with clocks of this process that cannot be set.
package skew

import (
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/record"
)

// A Clock is the broker's, as this process has heard of it. Its methods may be called from
// any goroutine.
type Clock struct {
	opened time.Time // when this process began to count

	mu    sync.Mutex
	ahead time.Duration // of the count
	known bool
	set   time.Time // when it was last found to have been set
	seen  map[string]firstSeen
}

// firstSeen is a revision of a record, and when this process first saw it.
type firstSeen struct {
	rev uint64
	at  time.Time
}

// New returns a clock of which nothing is known yet.
func New() *Clock { return &Clock{opened: time.Now(), seen: map[string]firstSeen{}} }

// Known reports whether this process has read the broker's clock.
func (c *Clock) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Note records the time of the broker's clock.
func (c *Clock) Note(now time.Time, tolerance time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := now.Sub(c.opened) - time.Since(c.opened)
	if c.known && (ahead-c.ahead).Abs() > tolerance {
		c.set = time.Now()
	}
	c.ahead, c.known = ahead, true
}

// Age is how long a record has certainly not been renewed that was written at a time, where
// its renewal was promised. While a clock that was set says nothing, it is the time since.
func (c *Clock) Age(at, now time.Time, promised time.Duration) time.Duration {
	c.Note(now, promised/2)
	c.mu.Lock()
	defer c.mu.Unlock()
	age := now.Sub(at)
	if age < -promised/2 && c.set.IsZero() {
		c.set = time.Now() // before this process began
	}
	if c.set.IsZero() {
		return age
	}
	calm := time.Since(c.set)
	if calm < promised || age < 0 {
		return calm
	}
	return age
}

// Silence is how many leases a worker may be silent until its job is taken
// from it without the broker, which should have offered it again after one.
const Silence = 3

// Overlooked returns those of the records that have not moved on for long, by
// the clock of this process alone: their worker is silent for some leases, or the back-off
// between two attempts is over.
func (c *Clock) Overlooked(entries []record.Entry, lease time.Duration) []record.Entry {
	var found []record.Entry
	for _, e := range entries {
		limit := Silence * max(time.Duration(e.Lease), lease)
		if e.State == jobs.Delayed {
			limit += e.PutOff(e.At) // by a clock that is set meanwhile it could be anything
		}
		if since, ok := c.Sighted(e); ok && time.Since(since) > limit {
			found = append(found, e)
		}
	}
	return found
}

// Sighted takes note of a record, and returns when this process first saw it in
// its current state. That means nothing for records that may wait for long.
func (c *Clock) Sighted(e record.Entry) (since time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	if e.State != jobs.Executing && (e.State != jobs.Delayed || e.Attempt == 0) {
		delete(seen, e.ID)
		return time.Time{}, false
	}
	s := seen[e.ID]
	if s.rev != e.Rev {
		s = firstSeen{e.Rev, time.Now()}
	}
	seen[e.ID] = s
	return s.at, true
}
