package api

import (
	"maps"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A tally counts what happened within its window, and nothing before: of a job that began
// before it and ended within it only the end, of one that never began no times.
func TestATallyCountsItsWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 4, 5, 0, 0, 0, time.UTC)
	ago := func(minutes float64) *time.Time {
		at := now.Add(-time.Duration(minutes * float64(time.Minute)))
		return &at
	}
	ended := func(outcome jobs.Outcome, submitted float64, started, claimed, finished *time.Time) jobs.Record {
		return jobs.Record{
			State: jobs.Finished, Outcome: outcome, Submitted: *ago(submitted), Started: started, Claimed: claimed, Finished: finished,
			LastAttempt: jobs.Spent{CostUSD: 0.5}, SpentBefore: jobs.Spent{CostUSD: 0.25},
		}
	}
	tally := newTally(now, 10*time.Minute)
	for _, rec := range []jobs.Record{
		ended(jobs.Success, 9, ago(8), ago(8), ago(6)),
		ended(jobs.Failure, 30, ago(20), ago(5), ago(1)),      // the second attempt
		ended(jobs.Success, 90, ago(80), ago(80), ago(70)),    // before the window
		ended(jobs.Cancellation, 5, nil, nil, ago(3)),         // it never began
		ended(jobs.Success, 0.5, ago(0.5), ago(0.5), ago(-1)), // by a clock that is ahead
		{State: jobs.Executing, Submitted: *ago(7), Started: ago(2), Claimed: ago(2)},
		{State: jobs.Pending, Submitted: *ago(3)},
	} {
		tally.add(rec)
	}
	got := tally.lately()
	want := operation.Lately{
		Ended: 4, PerMinute: 0.4, CostUSD: 3,
		Wait: operation.Spread{Count: 3, P50: 60, P95: 300, Max: 300},
		Run:  operation.Spread{Count: 3, P50: 120, P95: 240, Max: 240},
	}
	if counts := map[jobs.Outcome]int{jobs.Success: 2, jobs.Failure: 1, jobs.Cancellation: 1}; !maps.Equal(got.Outcomes, counts) {
		t.Errorf("outcomes: %v, want %v", got.Outcomes, counts)
	}
	got.Outcomes = nil
	if got.Wait != want.Wait || got.Run != want.Run || got.Ended != want.Ended || got.PerMinute != want.PerMinute || got.CostUSD != want.CostUSD {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSpread(t *testing.T) {
	t.Parallel()
	var times []float64
	for i := range 100 {
		times = append(times, float64(100-i))
	}
	for _, c := range []struct {
		times []float64
		want  operation.Spread
	}{
		{nil, operation.Spread{}},
		{[]float64{3}, operation.Spread{Count: 1, P50: 3, P95: 3, Max: 3}},
		{[]float64{4, 1}, operation.Spread{Count: 2, P50: 1, P95: 4, Max: 4}},
		{times, operation.Spread{Count: 100, P50: 50, P95: 95, Max: 100}},
	} {
		if got := spread(c.times); got != c.want {
			t.Errorf("%d times: %+v, want %+v", len(c.times), got, c.want)
		}
	}
}
