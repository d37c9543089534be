package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// clockSkew is how far the clocks of workers, of the broker and of this process may be
// apart: more only leaves jobs out of the statistics.
const clockSkew = time.Hour

// stats counts jobs: those that the pool holds, and what came of them in a window.
func (s *Server) stats(ctx context.Context, c caller, r operation.StatsRequest) (operation.PoolStats, error) {
	for _, name := range r.Queues {
		if err := s.exists(ctx, jobs.HoldQueue, name); err != nil {
			return operation.PoolStats{}, err
		}
	}
	held, err := s.counts.queues(ctx)
	if err != nil {
		return operation.PoolStats{}, err
	}
	window := time.Duration(cmp.Or(r.Window, jobs.Duration(operation.DefaultWindow)))
	now := time.Now().UTC()
	answer := operation.PoolStats{At: now, Window: jobs.Duration(window)}
	wanted := func(name string) bool { return len(r.Queues) == 0 || slices.Contains(r.Queues, name) }
	all, of := newTally(now, window), map[string]*tally{}
	// The record of a job that began or ended within the window was written within it.
	list, err := s.cfg.Queue.Written(ctx, window+clockSkew)
	if err != nil {
		return operation.PoolStats{}, err
	}
	for _, rec := range list {
		if !wanted(rec.Queue) {
			continue
		}
		if of[rec.Queue] == nil {
			of[rec.Queue] = newTally(now, window)
		}
		of[rec.Queue].add(rec)
		all.add(rec)
	}
	answer.Lately = all.lately()
	var queues []operation.QueueStats
	for _, q := range withEmpty(held, r.Queues) {
		if !wanted(q.Queue) {
			continue
		}
		addQueue(&answer, q)
		queues = append(queues, operation.QueueStats{Queue: q, Lately: of[q.Queue].lately()})
	}
	queues = after(queues, r.After, func(q operation.QueueStats) string { return q.Queue.Queue })
	part, more, err := page(queues, r.Limit, c.room)
	if answer.ByQueue = part; more {
		answer.Next = part[len(part)-1].Queue.Queue
	}
	return answer, err
}

// withEmpty adds queues that hold nothing, where they were asked for by name.
func withEmpty(held []operation.Queue, names []string) []operation.Queue {
	for _, name := range names {
		if !slices.ContainsFunc(held, func(q operation.Queue) bool { return q.Queue == name }) {
			held = append(held, operation.Queue{Queue: name})
		}
	}
	slices.SortFunc(held, func(a, b operation.Queue) int { return cmp.Compare(a.Queue, b.Queue) })
	return held
}

// addQueue adds what a queue holds to what the pool does.
func addQueue(all *operation.PoolStats, q operation.Queue) {
	all.Queues++
	all.Pending += q.Pending
	all.Delayed += q.Delayed
	all.Executing += q.Executing
	all.Waiting += q.Waiting
	all.Finished += q.Finished
	if q.Oldest != nil && (all.Oldest == nil || q.Oldest.Before(*all.Oldest)) {
		all.Oldest = q.Oldest
	}
}

// A tally is what happened to jobs within a window.
type tally struct {
	from, to  time.Time
	ended     int
	outcomes  map[jobs.Outcome]int
	wait, run []float64 // seconds
	usd       float64
}

func newTally(now time.Time, window time.Duration) *tally {
	return &tally{from: now.Add(-window), to: now, outcomes: map[jobs.Outcome]int{}}
}

// in reports whether something happened within the window. The clocks of workers may be
// ahead of this one, so what lies in the future has just happened.
func (t *tally) in(at *time.Time) bool { return at != nil && at.After(t.from) }

func (t *tally) add(rec jobs.Record) {
	if t.in(rec.Started) {
		t.wait = append(t.wait, seconds(rec.Submitted, *rec.Started))
	}
	if rec.State != jobs.Finished || !t.in(rec.Finished) {
		return
	}
	t.ended++
	t.outcomes[rec.Outcome]++
	t.usd = jobs.AddUSD(t.usd, rec.SpentBefore.Add(rec.LastAttempt).CostUSD)
	if rec.Claimed != nil {
		t.run = append(t.run, seconds(*rec.Claimed, *rec.Finished))
	}
}

// lately is nothing for a queue without jobs.
func (t *tally) lately() operation.Lately {
	if t == nil {
		return operation.Lately{Outcomes: map[jobs.Outcome]int{}}
	}
	return operation.Lately{
		Ended: t.ended, PerMinute: float64(t.ended) / t.to.Sub(t.from).Minutes(), Outcomes: t.outcomes,
		Wait: spread(t.wait), Run: spread(t.run), CostUSD: t.usd,
	}
}

func seconds(from, to time.Time) float64 { return max(to.Sub(from), 0).Seconds() }

func spread(times []float64) operation.Spread {
	if len(times) == 0 {
		return operation.Spread{}
	}
	slices.Sort(times)
	at := func(percent int) float64 { return times[(len(times)*percent+99)/100-1] } // the nearest rank
	return operation.Spread{Count: len(times), P50: at(50), P95: at(95), Max: at(100)}
}
