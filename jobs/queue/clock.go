package queue

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/record"
)

// The age of a heartbeat is a difference of two times of the broker's clock,
// which an administrator may set in between. So that no worker loses its job by
// that, and no job waits until the clock is where it was, what the clock says is
// compared with clocks of this process that cannot be set.

// A watched clock is the broker's, as this process has heard of it.
type watchedClock struct {
	opened time.Time     // when this process began to count
	ahead  time.Duration // of the count
	known  bool
	set    time.Time // when it was last found to have been set
	seen   map[string]firstSeen
}

// firstSeen is a revision of a record, and when this process first saw it.
type firstSeen struct {
	rev uint64
	at  time.Time
}

// noteClock records the time of the broker's clock.
func (q *Queue) noteClock(now time.Time, tolerance time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.watched
	ahead := now.Sub(c.opened) - time.Since(c.opened)
	if c.known && (ahead-c.ahead).Abs() > tolerance {
		c.set = time.Now()
	}
	c.ahead, c.known = ahead, true
}

// readClock makes sure that this process has read the broker's clock before it
// decides by it.
func (q *Queue) readClock(ctx context.Context) error {
	q.mu.Lock()
	known := q.watched.known
	q.mu.Unlock()
	if known {
		return nil
	}
	now, err := q.Now(ctx)
	if err == nil {
		q.noteClock(now, q.cfg.Lease)
	}
	return err
}

// age is how long a record has certainly not been renewed, where that was
// promised. While a clock that was set says nothing, it is the time since.
func (q *Queue) age(e record.Entry, now time.Time, promised time.Duration) time.Duration {
	q.noteClock(now, promised/2)
	q.mu.Lock()
	defer q.mu.Unlock()
	c, age := &q.watched, now.Sub(e.At)
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

// silence is how many leases a worker may be silent until its job is taken
// from it without the broker, which should have offered it again after one.
const silence = 3

// overlooked returns those of the records that have not moved on for long, by
// the clock of this process alone: their worker is silent, or the back-off
// between two attempts is over.
func (q *Queue) overlooked(entries []record.Entry) []record.Entry {
	var found []record.Entry
	for _, e := range entries {
		limit := silence * max(time.Duration(e.Lease), q.cfg.Lease)
		if e.State == jobs.Delayed {
			limit += e.Backoff() // by two times of a clock it could be anything
		}
		if since, ok := q.sighted(e); ok && time.Since(since) > limit {
			found = append(found, e)
		}
	}
	return found
}

// sighted takes note of a record, and returns when this process first saw it in
// its current state. That means nothing for records that may wait for long.
func (q *Queue) sighted(e record.Entry) (since time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	seen := q.watched.seen
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

// moveOn moves on a job that was overlooked. It removes a silent worker's message:
// the broker keeps it for that worker, and would offer it again when its clock,
// which was set back, has come to where it was. The caller must enqueue the job
// again.
func (q *Queue) moveOn(ctx context.Context, e record.Entry) (jobs.Record, error) {
	if e.State == jobs.Delayed {
		e.State, e.NotBefore = jobs.Pending, nil
		e, err := q.put(ctx, e)
		return e.Record, err
	}
	e, end := workerLost(e)
	e.Record, _ = e.After(end, time.Now())
	e, err := q.put(ctx, e)
	if err != nil {
		return jobs.Record{}, err
	}
	if e.State == jobs.Finished {
		hook(q.cfg.Hooks.Settled, e.Record)
		if err := q.conclude(ctx, e.Record); err != nil {
			return e.Record, err
		}
	}
	return e.Record, q.conn.Purge(ctx, subject.QueueStream(e.Class, e.Lane), q.names.Queue(e.Class, e.Lane, e.Tenant, e.ID))
}
