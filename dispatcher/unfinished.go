package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/schedule"
	"github.com/penstock-run/penstock/jobs/standing"
	"github.com/penstock-run/penstock/jobs/why"
)

// unfinished has the jobs that have not ended, for the leader's own decisions and for the
// questions of others. Its methods may be called from any goroutine.
type unfinished struct {
	mu   sync.Mutex
	plan *schedule.Plan
	// moving are the jobs that something else than the plan should bring on, and since
	// when; what takes too long is looked at.
	moving map[string]moving
}

type moving struct {
	since time.Time
	batch string // whose pause keeps it
}

func newUnfinished(caps schedule.Caps) *unfinished {
	return &unfinished{plan: schedule.New(caps), moving: map[string]moving{}}
}

// set says where a job stands. What it was waiting to be moved by has moved it.
func (u *unfinished) set(rec jobs.Record, state schedule.State) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.moving, rec.ID)
	u.plan.Set(rec, state)
	if state != schedule.Waiting {
		u.moving[rec.ID] = moving{since: time.Now()}
	}
}

// leave takes a job out of the plan, which something else than the plan must bring on from
// a time; nil: it has ended, or others have to.
func (u *unfinished) leave(id string, m *moving) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.moving, id)
	u.plan.Remove(id)
	if m != nil {
		u.moving[id] = *m
	}
}

// next returns the jobs that are to become ready; see [schedule.Plan.Next].
func (u *unfinished) next(depth func(jobs.Record) int) []jobs.Record {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.plan.Next(depth)
	for _, rec := range list {
		u.moving[rec.ID] = moving{since: time.Now()}
	}
	return list
}

// late returns the jobs that should have moved within a time, but for those of batches that
// are paused.
func (u *unfinished) late(within time.Duration, holds []jobs.Hold) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var late []string
	for id, m := range u.moving {
		paused := slices.ContainsFunc(holds, func(h jobs.Hold) bool {
			return h.Kind == jobs.HoldBatch && h.Name == m.batch && !h.Cancel
		})
		if time.Since(m.since) > within && !paused {
			late = append(late, id)
		}
	}
	return late
}

// Compete is of [standing.Unfinished].
func (u *unfinished) Compete(c standing.Competition) why.Facts {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := race{Competition: c, plan: u.plan, before: map[string]int{}, silent: map[string]bool{}}
	for g := range u.plan.Groups() {
		r.enter(g.Sample, r.pending(g))
		if g.Sample.Class != c.Job.Class || g.Sample.Lane != c.Job.Lane {
			r.count(g.Caps, r.pending(g))
		}
	}
	for id, m := range u.moving {
		if time.Since(m.since) < c.Lease {
			continue
		}
		// Its worker is silent: the broker is about to offer it again.
		if g, state, ok := u.plan.Find(id); ok && state == schedule.Running && !c.Paused(g.Sample) {
			r.silent[id] = true
			r.enter(g.Sample, 1)
		}
	}
	for lane, ids := range c.Order {
		r.line(lane, ids)
	}
	for _, bound := range c.Caps.Of(c.Job) {
		r.found.Caps = append(r.found.Caps, why.Cap{Key: bound.Key, Most: bound.Most, Running: u.plan.Running(bound.Key), Before: r.before[bound.Key]})
	}
	return r.found
}

// A race finds which jobs are claimed before one.
type race struct {
	standing.Competition
	plan   *schedule.Plan
	before map[string]int  // how many of them a cap counts, by its key
	silent map[string]bool // jobs that run, and whose worker was not heard of for a lease
	found  why.Facts
}

// skip reports whether no job of a group can be claimed now.
func (r *race) skip(g schedule.Group) bool { return r.plan.Full(g) || r.Paused(g.Sample) }

// pending is how many jobs of a group could be claimed now.
func (r *race) pending(g schedule.Group) int {
	if r.skip(g) {
		return 0
	}
	return g.Pending
}

// enter counts jobs that workers of the job may choose instead of it, other than those of
// its class in its own lane or an earlier one, whose order is known.
func (r *race) enter(sample jobs.Record, n int) {
	both := func(w why.Worker) bool { return w.Serves(sample) && w.Serves(r.Job) }
	switch {
	case n == 0 || !slices.ContainsFunc(r.Workers, both):
	case sample.Lane > r.Job.Lane:
		r.found.Below += n
	case sample.Class != r.Job.Class:
		r.found.Rivals += n
	}
}

// count notes that the caps of so many jobs may be used before the job is claimed.
func (r *race) count(caps []schedule.Cap, n int) {
	for _, c := range caps {
		r.before[c.Key] += n
	}
}

// line counts the jobs of the job's class that are before it in a lane: first those that
// have a message, in the broker's order, then the others in the plan's.
func (r *race) line(lane string, ids []string) {
	own, reached := lane == r.Job.Lane, false
	for _, id := range ids {
		if reached = reached || id == r.Job.ID; id == r.Job.ID {
			continue
		}
		g, state, ok := r.plan.Find(id)
		switch {
		case r.silent[id]:
			r.found.Ahead++ // the broker redelivers before it delivers more
		case !ok || r.Paused(g.Sample):
		case state != schedule.Running && !reached && !r.plan.Full(g):
			r.found.Ahead++
			if own {
				r.count(g.Caps, 1)
			}
		}
	}
	switch {
	case !own:
		r.found.Ahead += r.plan.Waiting(r.Job.Class, lane, r.skip)
	case !reached:
		n, capped := r.plan.Before(r.Job.ID, r.skip)
		r.found.Ahead += n
		for key, most := range capped {
			r.before[key] += min(n, most)
		}
	}
}
