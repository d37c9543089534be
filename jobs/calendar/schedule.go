// Package calendar says which jobs a cron schedule submits, and when.
//
//	add ─▶ armed ──its time──▶ fired ─▶ armed for the next time
//	         ▲  │                          ▲ a firing is one job, or is
//	  resume │  ▼ pause                    └ skipped with a reason
//	        paused
//
// A schedule is a job's template and a calendar. Its record names the one
// next firing. That time and the schedule's name are the firing's run,
// which is the key of its job. However many dispatchers handle a firing, and
// however often, it makes one job. The package holds values only: other packages
// store them and wake a dispatcher when a firing comes due.
package calendar

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// Bounds of what may be asked for. A record is read and written with each
// firing, so its template is small: files belong in a repository.
const (
	Most          = 1000 // schedules in a pool
	MaxTemplate   = 64 << 10
	shortestEvery = time.Second
	longestEvery  = 366 * 24 * time.Hour
	longestGrace  = 30 * 24 * time.Hour
)

// Label is what every job of a schedule has, with the schedule's name.
const Label = "schedule"

// A Schedule submits the same job again and again. The zero value of a field
// means "the default", which [Schedule.WithDefaults] fills in.
type Schedule struct {
	Name string `json:"name"`
	// Cron is a crontab line's five fields, or @daily and the like, read in the
	// time zone Timezone. Every is a distance instead, counted from when the
	// schedule was made.
	Cron     string        `json:"cron,omitempty"`
	Every    jobs.Duration `json:"every,omitempty"`
	Timezone string        `json:"timezone,omitempty"`
	// Missed says what becomes of a firing that no dispatcher handled in time, and
	// Grace how late a firing may be before it counts as missed, where Missed is skip.
	Missed Missed        `json:"missed,omitempty"`
	Grace  jobs.Duration `json:"grace,omitempty"`
	// Overlap says what becomes of a firing while the last one's job goes on.
	Overlap Overlap  `json:"overlap,omitempty"`
	Job     jobs.Job `json:"job"`
}

// Missed is what becomes of firings while the broker or every dispatcher was
// down.
type Missed string

// What may become of missed firings. Once is the default: the first of them
// makes its job late, and the others none.
const (
	MissedOnce Missed = "once"
	MissedSkip Missed = "skip"
)

// Overlap is what becomes of a firing while the last job has not finished.
type Overlap string

// What may become of a firing that overlaps. Skip is the default.
const (
	OverlapSkip  Overlap = "skip"
	OverlapAllow Overlap = "allow"
)

// WithDefaults returns the schedule with every default filled in.
func (s Schedule) WithDefaults() Schedule {
	if s.Cron != "" && s.Timezone == "" {
		s.Timezone = "UTC"
	}
	if s.Missed == "" {
		s.Missed = MissedOnce
	}
	if s.Missed == MissedSkip && s.Grace == 0 {
		s.Grace = jobs.Duration(time.Minute)
	}
	if s.Overlap == "" {
		s.Overlap = OverlapSkip
	}
	s.Job = s.Job.WithDefaults()
	return s
}

// Validate reports everything that is wrong with the schedule, except with
// what its job says beyond being a template. Call it on a schedule that has
// its defaults.
func (s Schedule) Validate() error {
	found := &findings{}
	found.add("name", jobs.CheckToken("name", s.Name))
	s.validateCalendar(found)
	found.oneOf("missed", string(s.Missed), string(MissedOnce), string(MissedSkip))
	found.oneOf("overlap", string(s.Overlap), string(OverlapSkip), string(OverlapAllow))
	switch grace := time.Duration(s.Grace); {
	case grace != 0 && s.Missed != MissedSkip:
		found.add("grace", errors.New("has no meaning unless missed is skip"))
	case grace < 0 || grace > longestGrace:
		found.add("grace", fmt.Errorf("%v is not between 0s and %v", grace, longestGrace))
	}
	s.validateTemplate(found)
	return found.orNil()
}

func (s Schedule) validateCalendar(found *findings) {
	if (s.Cron == "") == (s.Every == 0) {
		found.add("cron", errors.New(`give either cron, as in "0 3 * * 1-5", or every, as in 1h`))
		return
	}
	if s.Every != 0 {
		if every := time.Duration(s.Every); every < shortestEvery || every > longestEvery {
			found.add("every", fmt.Errorf("%v is not between %v and %v", every, shortestEvery, longestEvery))
		}
		if s.Timezone != "" {
			found.add("timezone", errors.New("has no meaning with every"))
		}
		return
	}
	line, err := parse(s.Cron)
	found.add("cron", err)
	_, zoneErr := zone(s.Timezone)
	found.add("timezone", zoneErr)
	if err == nil && line.next(time.Now(), time.UTC).IsZero() {
		found.add("cron", fmt.Errorf("%q never comes: there is no such day", s.Cron))
	}
}

func (s Schedule) validateTemplate(found *findings) {
	j := s.Job
	if j.Key != "" {
		found.add("job.key", errors.New("is the firing's own: with a key, all firings would be one job"))
	}
	if j.Signature != nil {
		found.add("job.signature", errors.New("is of one job, and a schedule makes many"))
	}
	if j.Trace != (jobs.Trace{}) {
		found.add("job.trace", errors.New("is of one job, and a schedule makes many: each begins a trace of its own"))
	}
	if j.RunAt != nil {
		found.add("job.run_at", errors.New("has no meaning in a schedule: its calendar says when"))
	}
	if j.Batch != "" {
		found.add("job.batch", errors.New("is not allowed: a batch ends, and a schedule does not"))
	}
	if _, has := j.Labels[Label]; has {
		found.add("job.labels."+Label, errors.New("is set by the schedule"))
	}
	if len(j.Labels) >= jobs.MaxLabels {
		found.add("job.labels", fmt.Errorf("has %d labels, at most %d are allowed beside the schedule's own", len(j.Labels), jobs.MaxLabels-1))
	}
	if data, err := json.Marshal(j); err != nil || len(data) > MaxTemplate {
		found.add("job", fmt.Errorf("is %d bytes long, at most %d are allowed in a schedule", len(data), MaxTemplate))
	}
}

// instance is the job of one run.
func (s Schedule) instance(run string) jobs.Job {
	j := s.Job
	j.Key, j.Labels = run, maps.Clone(j.Labels)
	if j.Labels == nil {
		j.Labels = map[string]string{}
	}
	j.Labels[Label] = s.Name
	return j
}

// findings collect what is wrong with a schedule.
type findings struct{ fields []jobs.FieldError }

func (f *findings) add(field string, err error) {
	if err == nil {
		return
	}
	if e, ok := errors.AsType[*jobs.FieldError](err); ok {
		f.fields = append(f.fields, *e)
		return
	}
	f.fields = append(f.fields, jobs.FieldError{Field: field, Reason: err.Error()})
}

func (f *findings) oneOf(field, got, first, second string) {
	if got != first && got != second {
		f.add(field, fmt.Errorf("%q is not allowed; use %s or %s", got, first, second))
	}
}

func (f *findings) orNil() error {
	if len(f.fields) == 0 {
		return nil
	}
	return &jobs.InvalidError{What: "schedule", Fields: f.fields}
}
