package timetable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/timetable"
)

func hourly(name string) calendar.Schedule {
	return calendar.Schedule{Name: name, Every: jobs.Duration(time.Hour), Job: jobstest.Job()}.WithDefaults()
}

// fires lets fire work on schedules until the test ends.
func fires(t *testing.T, q *queue.Queue, fire timetable.Fire) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := q.RunDue(ctx, fire); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// The process that adds a schedule dies before it asks the broker for the timer.
func TestAScheduleThatNobodyArmedIsRepaired(t *testing.T) {
	t.Parallel()
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{})
	rec := calendar.New(hourly("lost"), time.Now().Add(-time.Hour-500*time.Millisecond))
	if err := timetable.Store(jobstest.Context(t), q.Timetable(), rec); err != nil {
		t.Fatal(err)
	}
	fired := make(chan calendar.Firing, 10)
	fires(t, q, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		f := rec.Firing(now)
		fired <- f
		return rec.After(f), nil
	})
	var armed []string
	for end := time.Now().Add(jobstest.Patience); len(armed) == 0 && time.Now().Before(end); {
		var err error
		if armed, err = q.Timetable().Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	select {
	case f := <-fired:
		if want := rec.Firing(f.Fired).Run; f.Run != want {
			t.Errorf("fired %s, want %s", f.Run, want)
		}
	case <-time.After(jobstest.Patience):
		t.Fatalf("not fired; armed were %v", armed)
	}
}

// A firing that could not be worked on comes again.
func TestAFiringThatFailsComesAgain(t *testing.T) {
	t.Parallel()
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{})
	rec := calendar.New(hourly("again"), time.Now().Add(-time.Hour))
	if err := timetable.Store(jobstest.Context(t), q.Timetable(), rec); err != nil {
		t.Fatal(err)
	}
	tries, done := 0, make(chan struct{})
	fires(t, q, func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		if tries++; tries < 2 {
			return rec, errors.New("the store is full")
		}
		close(done)
		return rec.After(rec.Firing(now)), nil
	})
	same := func(_ context.Context, rec calendar.Record, _ time.Time) (calendar.Record, error) { return rec, nil }
	if _, err := q.Timetable().Change(jobstest.Context(t), "again", same); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(jobstest.Patience):
		t.Fatalf("tried %d times", tries)
	}
}

// A dispatcher that is woken too early, by the timer of a schedule that was
// replaced or removed, only checks that the timer is right.
func TestAWakeUpForNothing(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t)
	nc := s.Connect()
	q := jobstest.Queue(t, nc, queue.Config{})
	for _, name := range []string{"later", "paused"} {
		if _, err := q.Timetable().Add(jobstest.Context(t), hourly(name), false); err != nil {
			t.Fatal(err)
		}
	}
	pause := func(_ context.Context, rec calendar.Record, now time.Time) (calendar.Record, error) {
		return rec.Pause("test", now), nil
	}
	if _, err := q.Timetable().Change(jobstest.Context(t), "paused", pause); err != nil {
		t.Fatal(err)
	}
	fires(t, q, func(_ context.Context, rec calendar.Record, _ time.Time) (calendar.Record, error) {
		t.Errorf("schedule %s was fired", rec.Name)
		return rec, nil
	})
	for _, name := range []string{"later", "paused", "gone"} {
		woken := "penstock.v1.due.cron.default." + name
		if _, err := nc.Request(woken, nil, jobstest.Patience); err != nil {
			t.Fatal(err)
		}
		left := func(subject string) bool {
			m, err := nc.Request("$JS.API.STREAM.MSG.GET.PS_SCHED", []byte(`{"last_by_subj":"`+subject+`"}`), jobstest.Patience)
			return err != nil || !strings.Contains(string(m.Data), "10037")
		}
		for end := time.Now().Add(jobstest.Patience); left(woken); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s is still there", woken)
			}
		}
		if timer := left("penstock.v1.sched.default.cron." + name); timer != (name == "later") {
			t.Errorf("schedule %s: timer %v", name, timer)
		}
	}
}

// Changes by many at once are all made, one after the other.
func TestSchedulesChangeOneAfterTheOther(t *testing.T) {
	t.Parallel()
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{})
	if _, err := q.Timetable().Add(jobstest.Context(t), hourly("busy"), false); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := q.Timetable().Change(jobstest.Context(t), "busy", func(_ context.Context, rec calendar.Record, _ time.Time) (calendar.Record, error) {
				rec.LastJob += "x"
				return rec, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if rec, err := q.Timetable().Get(t.Context(), "busy"); err != nil || rec.LastJob != "xxxxxxxx" {
		t.Errorf("got %q, %v", rec.LastJob, err)
	}
}

func TestSchedulesAreBounded(t *testing.T) {
	t.Parallel()
	q := jobstest.Queue(t, jobstest.Start(t).Connect(), queue.Config{})
	for i := range calendar.Most {
		if err := timetable.Store(jobstest.Context(t), q.Timetable(), calendar.New(hourly(fmt.Sprintf("s%d", i)), time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	_, err := q.Timetable().Add(jobstest.Context(t), hourly("more"), false)
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); !ok || invalid.Fields[0].Field != "name" {
		t.Errorf("one more: %v", err)
	}
	if _, err := q.Timetable().Add(jobstest.Context(t), hourly("s7"), true); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	list, err := q.Timetable().List(jobstest.Context(t))
	if err != nil || len(list) != calendar.Most || list[0].Name != "s0" || list[1].Name != "s1" || list[2].Name != "s10" {
		t.Errorf("%d schedules, %v", len(list), err)
	}
}
