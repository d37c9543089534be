package calendar

import (
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A Record is what the pool knows about a schedule.
type Record struct {
	Schedule
	// Since is when its calendar began: the first firing is after that.
	Since  time.Time `json:"since" jsonschema:"When its calendar began: the first firing is after that."`
	Paused *Pause    `json:"paused,omitempty" jsonschema:"There while the schedule is paused."`
	// Next is the firing for which the broker wakes a dispatcher.
	// There is none while the schedule is paused, or when its calendar has ended.
	Next *time.Time `json:"next,omitempty" jsonschema:"When it fires next, if it does."`
	Last *Firing    `json:"last,omitempty" jsonschema:"The last firing."`
	// LastJob is the job of the last firing that made one.
	LastJob string `json:"last_job,omitempty" jsonschema:"The job of the last firing that made one."`
}

// A Pause says who paused a schedule, and when.
type Pause struct {
	By string    `json:"by,omitempty" jsonschema:"The program that paused it."`
	At time.Time `json:"at" jsonschema:"When."`
}

// A Firing is what became of one time of the calendar, or of a request to run
// now.
type Firing struct {
	Run    string    `json:"run" jsonschema:"The key of its job."`             // the key of its job
	At     time.Time `json:"at" jsonschema:"When it was due."`                 // when it was due
	Fired  time.Time `json:"fired" jsonschema:"When a dispatcher handled it."` // when a dispatcher handled it
	Manual bool      `json:"manual,omitempty" jsonschema:"It was asked for, and not due."`
	// Job is its job, or Skipped and Message say why it has none.
	Job     string `json:"job,omitempty" jsonschema:"The job that came of it."`
	Skipped Skip   `json:"skipped,omitempty" jsonschema:"Why no job came of it."`
	Message string `json:"message,omitempty" jsonschema:"What happened, for people."`
}

// Skip is why a firing has made no job.
type Skip string

// Why a firing has made no job.
const (
	SkippedMissed  Skip = "missed"  // no dispatcher ran in time
	SkippedOverlap Skip = "overlap" // the last job had not finished
	SkippedInvalid Skip = "invalid" // the pool refused the job
)

// New returns the record of a schedule that begins now.
func New(s Schedule, now time.Time) Record {
	r := Record{Schedule: s, Since: now.UTC().Truncate(time.Second)}
	r.arm(now)
	return r
}

// Replaced returns the record with another schedule, from now on. That it is
// paused, and what it did last, stays.
func (r Record) Replaced(s Schedule, now time.Time) Record {
	fresh := New(s, now)
	fresh.Last, fresh.LastJob, fresh.Paused = r.Last, r.LastJob, r.Paused
	if r.Paused != nil {
		fresh.Next = nil
	}
	return fresh
}

// Pause returns the record without a next firing.
func (r Record) Pause(by string, now time.Time) Record {
	if r.Paused == nil {
		r.Paused = &Pause{By: by, At: now.UTC()}
	}
	r.Next = nil
	return r
}

// Resume returns the record with its next firing. What fell into the pause was
// not missed: it was not wanted.
func (r Record) Resume(now time.Time) Record {
	if r.Paused != nil {
		r.Paused = nil
		r.arm(now)
	}
	return r
}

// Due reports whether the next firing has come, or comes within a second: the
// clock that woke the dispatcher may differ from its own.
func (r Record) Due(now time.Time) bool { return r.Next != nil && !r.Next.After(now.Add(time.Second)) }

// Firing is the next one, as it begins.
func (r Record) Firing(now time.Time) Firing {
	at := r.Next.UTC()
	return Firing{Run: "schedule/" + r.Name + "/" + at.Format(time.RFC3339), At: at, Fired: now.UTC()}
}

// Manual is the firing with an id that a user has requested.
func (r Record) Manual(id string, now time.Time) Firing {
	now = now.UTC()
	return Firing{Run: "schedule/" + r.Name + "/" + id, At: now, Fired: now, Manual: true}
}

// Late reports whether a firing is one that was missed, and that the schedule
// wants skipped.
func (r Record) Late(f Firing) bool {
	return r.Missed == MissedSkip && f.Fired.Sub(f.At) > time.Duration(r.Grace)
}

// Instance is the job of a firing.
func (r Record) Instance(f Firing) jobs.Job { return r.instance(f.Run) }

// After returns the record when a firing has been worked on.
func (r Record) After(f Firing) Record {
	r.Last = &f
	if f.Job != "" {
		r.LastJob = f.Job
	}
	if f.Manual {
		return r
	}
	from := f.Fired
	if f.Skipped == SkippedMissed {
		// One that came due since may be in time yet.
		from = from.Add(-time.Duration(r.Grace))
	}
	if from.Before(f.At) {
		from = f.At
	}
	r.arm(from)
	return r
}

// arm sets the first firing after a time.
func (r *Record) arm(after time.Time) {
	r.Next = nil
	if next := r.after(after); !next.IsZero() {
		r.Next = new(next.UTC())
	}
}

// Upcoming returns up to n firings, the next one first, in the schedule's time
// zone.
func (r Record) Upcoming(n int) []time.Time {
	var list []time.Time
	if r.Next == nil {
		return list
	}
	loc, err := zone(r.Timezone)
	if err != nil {
		return list
	}
	for at := *r.Next; !at.IsZero() && len(list) < n; at = r.after(at) {
		list = append(list, at.In(loc))
	}
	return list
}

// after returns the calendar's first time after t, or the zero time.
func (r Record) after(t time.Time) time.Time {
	if every := time.Duration(r.Every); every > 0 {
		return r.Since.Add((max(t.Sub(r.Since), 0)/every + 1) * every)
	}
	l, err := parse(r.Cron)
	loc, zoneErr := zone(r.Timezone)
	if err != nil || zoneErr != nil {
		return time.Time{} // written by another version: it fires no more, and shows no next time
	}
	return l.next(t, loc)
}
