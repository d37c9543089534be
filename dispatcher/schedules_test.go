package dispatcher_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/record"
)

// every is a schedule that fires at a distance, whatever its last job does.
func every(name string, d time.Duration) calendar.Schedule {
	return calendar.Schedule{Name: name, Every: jobs.Duration(d), Overlap: calendar.OverlapAllow, Job: job()}
}

func (p pool) add(t *testing.T, s calendar.Schedule) calendar.Record {
	t.Helper()
	rec, err := p.Schedules().Add(jobstest.Context(t), s, false)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (p pool) schedule(t *testing.T, name string) calendar.Record {
	t.Helper()
	rec, err := p.queue.Timetable().Get(jobstest.Context(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// runs are the jobs that a schedule has made, by their runs. That a run has
// two is an error.
func (p pool) runs(t *testing.T, name string) map[string]jobs.Record {
	t.Helper()
	list, err := p.queue.List(jobstest.Context(t), record.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]jobs.Record{}
	for _, rec := range list {
		if rec.Labels[calendar.Label] != name {
			continue
		}
		if first, has := runs[rec.Key]; has {
			t.Errorf("run %s has made %s and %s", rec.Key, first.ID, rec.ID)
		}
		runs[rec.Key] = rec
	}
	return runs
}

func TestAFiringIsOneJobForManyDispatchers(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	a, b := openOn(t, s.Connect(), dispatcher.Hooks{}), openOn(t, s.Connect(), dispatcher.Hooks{})
	a.add(t, every("often", time.Second))
	a.serve(t)
	b.serve(t)
	eventually(t, "three firings", func() bool { return len(a.runs(t, "often")) >= 3 })
	if _, err := a.Schedules().Pause(t.Context(), "often", "test"); err != nil {
		t.Fatal(err)
	}
	runs, rec := a.runs(t, "often"), a.schedule(t, "often")
	if last := runs[rec.Last.Run]; last.ID != rec.Last.Job || last.ID != rec.LastJob || len(a.kinds(t, last.Session)) != 1 {
		t.Errorf("last firing %+v, its job %+v", rec.Last, last)
	}
	for run, made := range runs {
		at, err := time.Parse(time.RFC3339, strings.TrimPrefix(run, "schedule/often/"))
		if err != nil || at.Sub(rec.Since)%time.Second != 0 || made.Submitted.Before(at.Add(-time.Second)) {
			t.Errorf("run %s of %s was submitted at %s: %v", run, rec.Since, made.Submitted, err)
		}
	}
}

// The same firing is worked on again and again: by two dispatchers that read the
// record at once, and by one that comes after a crash between the job and the
// record.
func TestAFiringThatIsRepeatedIsOneJob(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	rec := p.add(t, every("daily", 24*time.Hour))
	due := rec.Next.Add(time.Minute)
	begun, err := p.Submit(t.Context(), rec.Instance(rec.Firing(due)), "test")
	if err != nil {
		t.Fatal(err)
	}
	rec.Missed, rec.Grace = calendar.MissedSkip, jobs.Duration(time.Second)
	rec.Overlap, rec.LastJob = calendar.OverlapSkip, begun.ID
	for range 3 {
		after, err := dispatcher.Fire(t.Context(), p.Dispatcher, rec, due.Add(time.Hour))
		if err != nil || after.Last.Job != begun.ID || !after.Next.After(due.Add(time.Hour)) {
			t.Errorf("got %+v, %v, want job %s", after.Last, err, begun.ID)
		}
	}
	if got := p.runs(t, "daily"); len(got) != 1 {
		t.Errorf("jobs: %v", got)
	}
}

func TestWhatIsNotFired(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	rec := p.add(t, every("daily", 24*time.Hour))
	due := *rec.Next
	fire := func(rec calendar.Record, now time.Time) calendar.Firing {
		t.Helper()
		after, err := dispatcher.Fire(t.Context(), p.Dispatcher, rec, now)
		if err != nil || !after.Next.After(now.Add(-time.Duration(rec.Grace))) {
			t.Fatalf("next %v after %v, %v", after.Next, now, err)
		}
		return *after.Last
	}
	first := fire(rec, due)
	if first.Job == "" {
		t.Fatalf("no job: %+v", first)
	}

	busy := rec
	busy.Overlap, busy.LastJob, busy.Next = calendar.OverlapSkip, first.Job, new(due.Add(time.Hour))
	if f := fire(busy, due.Add(time.Hour)); f.Skipped != calendar.SkippedOverlap || !strings.Contains(f.Message, first.Job) {
		t.Errorf("the last job has not begun: %+v", f)
	}
	if _, err := p.queue.Cancel(t.Context(), first.Job, "test"); err != nil {
		t.Fatal(err)
	}
	if f := fire(busy, due.Add(time.Hour)); f.Job == "" {
		t.Errorf("the last job has ended: %+v", f)
	}

	late := rec
	late.Missed, late.Grace, late.Next = calendar.MissedSkip, jobs.Duration(time.Minute), new(due.Add(2*time.Hour))
	if f := fire(late, due.Add(2*time.Hour+90*time.Second)); f.Skipped != calendar.SkippedMissed {
		t.Errorf("ninety seconds late: %+v", f)
	}
	if f := fire(late, due.Add(2*time.Hour+30*time.Second)); f.Job == "" {
		t.Errorf("thirty seconds late: %+v", f)
	}

	wrong := rec
	wrong.Job.FromSalvage, wrong.Next = jobs.NewID(), new(due.Add(3*time.Hour))
	if f := fire(wrong, due.Add(3*time.Hour)); f.Skipped != calendar.SkippedInvalid || !strings.Contains(f.Message, "from_salvage") {
		t.Errorf("what it begins from has gone: %+v", f)
	}
}

// The broker is killed before a firing and comes back after it, and after the
// one that follows: the first is made, late, and only once.
func TestAFiringWhileTheBrokerIsDead(t *testing.T) {
	t.Parallel()
	child := jobstest.Child(t)
	p := openOn(t, jobstest.Connect(t, child.URL()), dispatcher.Hooks{})
	p.serve(t)
	rec := p.add(t, every("kept", 4*time.Second))
	child.Kill()
	time.Sleep(time.Until(rec.Next.Add(4500 * time.Millisecond)))
	child.Up()
	first := rec.Firing(time.Now()).Run
	eventually(t, "the missed firing", func() bool { return p.runs(t, "kept")[first].ID != "" })
	missed := calendar.Record{Schedule: rec.Schedule, Next: new(rec.Next.Add(4 * time.Second))}
	eventually(t, "a firing in time", func() bool { return len(p.runs(t, "kept")) >= 2 })
	if made, has := p.runs(t, "kept")[missed.Firing(time.Now()).Run]; has {
		t.Errorf("the second firing of the downtime has made %+v", made)
	}
}

// No dispatcher ran for a while: the schedule skips what was missed, and goes on.
func TestMissedFiringsAreSkipped(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := openOn(t, s.Connect(), dispatcher.Hooks{})
	skipping := every("skipping", 3*time.Second)
	skipping.Missed, skipping.Grace = calendar.MissedSkip, jobs.Duration(time.Second)
	rec := p.add(t, skipping)
	s.Down()
	time.Sleep(time.Until(rec.Next.Add(1200 * time.Millisecond)))
	s.Up()
	p.serve(t)
	eventually(t, "the missed firing is skipped", func() bool {
		last := p.schedule(t, "skipping").Last
		return last != nil && last.Skipped == calendar.SkippedMissed
	})
	eventually(t, "a firing in time", func() bool { return len(p.runs(t, "skipping")) > 0 })
	if made, has := p.runs(t, "skipping")[rec.Firing(time.Now()).Run]; has {
		t.Errorf("the missed firing has made %+v", made)
	}
}

func TestPauseRunResumeReplaceRemove(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	p := openOn(t, s.Connect(), dispatcher.Hooks{})
	p.serve(t)
	p.add(t, every("s", time.Second))
	if _, err := p.Schedules().Add(t.Context(), every("s", time.Hour), false); !invalidField(err, "name") {
		t.Errorf("added twice: %v", err)
	}
	eventually(t, "a firing", func() bool { return len(p.runs(t, "s")) > 0 })
	if rec, err := p.Schedules().Pause(t.Context(), "s", "test"); err != nil || rec.Next != nil || rec.Paused.By != "test" {
		t.Fatalf("paused: %+v, %v", rec, err)
	}
	s.Restart()
	before := len(p.runs(t, "s"))
	rec, err := p.Schedules().Run(jobstest.Context(t), "s", "", jobs.Trace{})
	if err != nil || !rec.Last.Manual || rec.Next != nil {
		t.Fatalf("run now while paused: %+v, %v", rec, err)
	}
	time.Sleep(1500 * time.Millisecond) // that nothing happens can only be waited for
	if got := p.runs(t, "s"); len(got) != before+1 || got[rec.Last.Run].ID != rec.Last.Job {
		t.Errorf("%d jobs, with %+v, want %d", len(got), rec.Last, before+1)
	}
	if _, err := p.Schedules().Resume(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a firing when it is resumed", func() bool { return len(p.runs(t, "s")) > before+1 })
	if rec, err = p.Schedules().Add(t.Context(), every("s", time.Hour), true); err != nil || time.Until(*rec.Next) < 50*time.Minute || rec.LastJob == "" {
		t.Fatalf("replaced: %+v, %v", rec, err)
	}
	before = len(p.runs(t, "s"))
	time.Sleep(1500 * time.Millisecond)
	if err := p.queue.Timetable().Remove(t.Context(), "s"); err != nil {
		t.Fatal(err)
	}
	if got := len(p.runs(t, "s")); got != before {
		t.Errorf("%d jobs after it was replaced, want %d", got, before)
	}
	if _, err := p.Schedules().Run(t.Context(), "s", "", jobs.Trace{}); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("removed, and run: %v", err)
	}
}

func invalidField(err error, field string) bool {
	invalid, ok := errors.AsType[*jobs.InvalidError](err)
	return ok && len(invalid.Fields) > 0 && invalid.Fields[0].Field == field
}

func TestSchedulesOverTheBus(t *testing.T) {
	p := open(t, dispatcher.Hooks{})
	p.serve(t)
	ask := func(verb, body string) string {
		t.Helper()
		var answer string
		eventually(t, "an answer to "+verb, func() bool {
			msg, err := p.nc.Request("penstock.v1.api.schedule-"+verb, []byte(body), jobstest.Patience)
			if err == nil {
				answer = string(msg.Data)
			}
			return err == nil
		})
		return answer
	}
	const body = `{"name":"n","cron":"0 3 * * *","job":{"isolation":"none","agent":{"name":"command","command":["true"]}}}`
	for _, tt := range []struct{ verb, body, want string }{
		{"add", body, `"next":"`},
		{"add", body, `"code":"invalid"`},
		{"replace", body, `"timezone":"UTC"`},
		{"add", `{"name":"m","crn":"x"}`, `"field":"crn"`},
		{"add", `{"name":"m","cron":"x","job":{"isolation":"none"}}`, `"field":"cron"`},
		{"add", `{"name":"m","every":"1h","job":{"isolation":"none"}}`, `"field":"job.agent.name"`},
		{"list", ``, `[{"name":"n"`},
		{"get", `{"name":"n"}`, `"since":"`},
		{"pause", `{"name":"n"}`, `"paused":{"by":"api"`},
		{"run", `{"name":"n"}`, `"manual":true`},
		{"resume", `{"name":"n"}`, `"next":"`},
		{"remove", `{"name":"n"}`, `{"name":"n"}`},
		{"get", `{"name":"n"}`, `"code":"not_found"`},
		{"get", `{}`, `"field":"name"`},
	} {
		if got := ask(tt.verb, tt.body); !json.Valid([]byte(got)) || !strings.Contains(got, tt.want) {
			t.Errorf("%s %s: got %s, want %s in it", tt.verb, tt.body, got, tt.want)
		}
	}
}
