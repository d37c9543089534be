package calendar_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

func nightly() calendar.Schedule {
	return calendar.Schedule{
		Name: "nightly", Cron: "0 3 * * *", Timezone: "Europe/Berlin",
		Job: jobs.Job{Prompt: "x", Agent: jobs.Agent{Name: "command", Command: []string{"true"}}},
	}.WithDefaults()
}

func TestValidate(t *testing.T) {
	if err := nightly().Validate(); err != nil {
		t.Fatal(err)
	}
	hour := jobs.Duration(time.Hour)
	tests := []struct {
		field  string
		change func(*calendar.Schedule)
	}{
		{"name", func(s *calendar.Schedule) { s.Name = "Nightly *" }},
		{"cron", func(s *calendar.Schedule) { s.Cron = "" }},
		{"cron", func(s *calendar.Schedule) { s.Every = hour }},
		{"cron", func(s *calendar.Schedule) { s.Cron = "0 3 * *" }},
		{"cron", func(s *calendar.Schedule) { s.Cron = "0 0 30 2 *" }},
		{"every", func(s *calendar.Schedule) { s.Cron, s.Timezone, s.Every = "", "", 1 }},
		{"every", func(s *calendar.Schedule) { s.Cron, s.Timezone, s.Every = "", "", -hour }},
		{"timezone", func(s *calendar.Schedule) { s.Cron, s.Every = "", hour }},
		{"timezone", func(s *calendar.Schedule) { s.Timezone = "Local" }},
		{"missed", func(s *calendar.Schedule) { s.Missed = "all" }},
		{"grace", func(s *calendar.Schedule) { s.Grace = hour }},
		{"grace", func(s *calendar.Schedule) { s.Missed, s.Grace = calendar.MissedSkip, -1 }},
		{"overlap", func(s *calendar.Schedule) { s.Overlap = "queue" }},
		{"job.key", func(s *calendar.Schedule) { s.Job.Key = "k" }},
		{"job.trace", func(s *calendar.Schedule) { s.Job.Trace = jobs.RootTrace("x") }},
		{"job.run_at", func(s *calendar.Schedule) { s.Job.RunAt = new(time.Now()) }},
		{"job.signature", func(s *calendar.Schedule) { s.Job.Signature = &jobs.Signature{} }},
		{"job.batch", func(s *calendar.Schedule) { s.Job.Batch = "b" }},
		{"job.labels.schedule", func(s *calendar.Schedule) { s.Job.Labels = map[string]string{"schedule": "other"} }},
		{"job", func(s *calendar.Schedule) { s.Job.Prompt = strings.Repeat("x", calendar.MaxTemplate) }},
	}
	for _, tt := range tests {
		s := nightly()
		tt.change(&s)
		err := s.Validate()
		invalid, ok := errors.AsType[*jobs.InvalidError](err)
		if !ok || !slices.ContainsFunc(invalid.Fields, func(f jobs.FieldError) bool { return f.Field == tt.field }) {
			t.Errorf("got %v, want the field %s named", err, tt.field)
		}
	}
}

func at(text string) time.Time {
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return moment
}

func TestLifeOfASchedule(t *testing.T) {
	r := calendar.New(nightly(), at("2026-11-20T12:00:00Z"))
	next := func(want string) {
		t.Helper()
		if r.Next == nil || !r.Next.Equal(at(want)) {
			t.Errorf("next is %v, want %s", r.Next, want)
		}
	}
	next("2026-11-21T02:00:00Z")
	if r.Due(at("2026-11-21T01:59:58Z")) || !r.Due(at("2026-11-21T02:00:00Z")) {
		t.Error("due is not from its time on")
	}

	// Two days late: the firing keeps its own time, and those between are gone.
	f := r.Firing(at("2026-11-23T02:30:00Z"))
	if f.Run != "schedule/nightly/2026-11-21T02:00:00Z" || r.Late(f) {
		t.Errorf("firing %+v, late %v", f, r.Late(f))
	}
	job := r.Instance(f)
	if job.Key != f.Run || job.Labels["schedule"] != "nightly" || r.Job.Labels != nil {
		t.Errorf("job %+v of the template %+v", job, r.Job)
	}
	f.Job = "j1"
	r = r.After(f)
	next("2026-11-24T02:00:00Z")
	if r.LastJob != "j1" {
		t.Errorf("last job %q", r.LastJob)
	}

	// A firing by hand leaves the calendar alone, and so does a pause what was.
	by := r.Manual("m1", at("2026-11-23T12:00:00Z"))
	by.Job = "j2"
	r = r.After(by)
	next("2026-11-24T02:00:00Z")
	r = r.Pause("cli", at("2026-11-23T13:00:00Z"))
	if r.Next != nil || r.Due(at("2026-11-30T00:00:00Z")) || len(r.Upcoming(3)) != 0 || r.LastJob != "j2" {
		t.Errorf("paused: %+v", r)
	}
	r = r.Replaced(nightly(), at("2026-11-25T00:00:00Z"))
	if r.Next != nil || r.Paused == nil || r.LastJob != "j2" {
		t.Errorf("replaced while paused: %+v", r)
	}
	r = r.Resume(at("2026-11-27T12:00:00Z"))
	next("2026-11-28T02:00:00Z")
	if got := r.Upcoming(2); len(got) != 2 || got[1].Format(time.RFC3339) != "2026-11-29T03:00:00+01:00" {
		t.Errorf("upcoming: %v", got)
	}
}

// Of the firings of a downtime that are to be skipped, the last may be in time
// still.
func TestMissedAreSkipped(t *testing.T) {
	s := nightly()
	s.Cron, s.Timezone, s.Every, s.Missed = "", "", jobs.Duration(10*time.Minute), calendar.MissedSkip
	s = s.WithDefaults()
	for _, tt := range []struct{ now, next string }{
		{"2026-11-20T13:00:30Z", "2026-11-20T13:00:00Z"},
		{"2026-11-20T13:02:00Z", "2026-11-20T13:10:00Z"},
	} {
		r := calendar.New(s, at("2026-11-20T12:00:00Z"))
		f := r.Firing(at(tt.now))
		if !r.Late(f) {
			t.Fatalf("%+v is not late", f)
		}
		f.Skipped = calendar.SkippedMissed
		if r = r.After(f); !r.Next.Equal(at(tt.next)) {
			t.Errorf("at %s: next is %s, want %s", tt.now, r.Next, tt.next)
		}
	}
}

// The distance is counted from when the schedule was made, not from when a
// firing was worked on: times do not drift.
func TestEveryDoesNotDrift(t *testing.T) {
	s := nightly()
	s.Cron, s.Timezone, s.Every = "", "", jobs.Duration(time.Hour)
	r := calendar.New(s, at("2026-11-20T12:00:20Z"))
	for range 3 {
		r = r.After(r.Firing(r.Next.Add(17 * time.Minute)))
	}
	if !r.Next.Equal(at("2026-11-20T16:00:20Z")) {
		t.Errorf("next is %s", r.Next)
	}
}
