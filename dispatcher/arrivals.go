package dispatcher

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// remembered is for how long the leader knows that it has counted a job.
const remembered = 10 * time.Minute

// arrivals tells jobs that are accepted while this dispatcher leads, by whichever
// dispatcher, from those that were there before: a record is met again with every
// change. Jobs that were accepted while there was no leader are not counted.
type arrivals struct {
	after time.Time            // jobs from before are counted, or were there
	known map[string]time.Time // counted since, by job: when it was accepted
}

func newArrivals(now time.Time) *arrivals {
	return &arrivals{after: now, known: map[string]time.Time{}}
}

// first reports whether a job is new here.
func (a *arrivals) first(rec jobs.Record, now time.Time) bool {
	if _, known := a.known[rec.ID]; known || !rec.Submitted.After(a.after) {
		return false
	}
	a.known[rec.ID] = rec.Submitted
	if oldest := now.Add(-2 * remembered); a.after.Before(oldest) {
		a.forget(now.Add(-remembered))
	}
	return true
}

// forget drops what was accepted before a time, which is not counted again.
func (a *arrivals) forget(before time.Time) {
	a.after = before
	for id, at := range a.known {
		if !at.After(before) {
			delete(a.known, id)
		}
	}
}
