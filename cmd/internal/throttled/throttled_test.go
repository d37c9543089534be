package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/measure/measuretest"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/exectest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Nine agents, one of them the real Claude Code, want three times what the API allows. All succeed in their first
// attempt, with few refusals, which do not reach them.
func TestASmallFleet(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "git", "claude"} {
		exectest.Need(t, program)
	}
	measuretest.NeedJail(t)
	program := measuretest.Program(t)
	plot := filepath.Join(t.TempDir(), "plot.svg")
	o, err := parse([]string{
		"-program", program, "-dir", t.TempDir(), "-plot", plot,
		"-workers", "3", "-agents", "9", "-real", "1", "-rate", "4", "-for", "35s", "-stagger", "100ms",
	})
	if err != nil {
		t.Fatal(err)
	}
	o.judge = report.lost
	var out strings.Builder
	r, err := run(t.Context(), o, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	if want := o.agents * o.calls(); r.calls.served != want || r.attempts != o.agents {
		t.Errorf("%d calls were accepted in %d attempts, want %d in %d", r.calls.served, r.attempts, want, o.agents)
	}
	// Most are of the first seconds, in which the workers find the pace; a slow machine asks for less.
	if r.refusedOfAll > 0.25 {
		t.Errorf("%.1f %% of the calls were refused", 100*r.refusedOfAll)
	}
	if text, err := os.ReadFile(plot); err != nil || strings.Count(string(text), "<polyline") != 7 {
		t.Errorf("the plot: %v\n%s", err, text)
	}
}

// The API allows what its limit says: at first the bucket, then the rate, in the quota nothing.
func TestTheLimit(t *testing.T) {
	t.Parallel()
	l := limit{rate: 4, burst: 8, quotaFrom: time.Minute, quota: time.Minute}
	a := newAPI(l, 1, 0)
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	before := counts{}
	for at := time.Duration(0); at <= 3*time.Minute; at += 50 * time.Millisecond {
		r, made := a.ask(now.Add(at), agentModel, "a")
		if r == nil && made != a.counts.served {
			t.Fatalf("after %v: %d calls, and %+v", at, made, a.counts)
		}
		if in := at >= time.Minute && at < 2*time.Minute; in && (r == nil || at == time.Minute && r.After != "60" || r.Header != nil) || !in && r != nil && (r.After != "1" || len(r.Header) != 3) {
			t.Fatalf("after %v: %+v", at, r)
		}
		if at%time.Minute == 0 && at > 0 {
			got := counts{a.counts.asked - before.asked, a.counts.served - before.served, a.counts.late - before.late}
			want := map[time.Duration]counts{time.Minute: {1201, 248, 0}, 2 * time.Minute: {1200, 0, 1099}, 3 * time.Minute: {1200, 240, 0}}[at]
			if got.asked != want.asked || got.late != want.late || math.Abs(float64(got.served-want.served)) > 1 {
				t.Errorf("in the minute before %v: %+v, want %+v", at, got, want)
			}
			before = a.counts
		}
	}
	for at, want := range map[time.Duration]bool{time.Minute: false, time.Minute + grace + 1: true, 2*time.Minute - 1: true, 2 * time.Minute: false} {
		if a.closed(now.Add(at)) != want {
			t.Errorf("after %v it is closed: %v", at, !want)
		}
	}
	if got := l.allowed(30*time.Second, 150*time.Second); got != 240 {
		t.Errorf("%v calls are allowed around the quota, want 240", got)
	}
}

// Each bound that a run misses is named.
func TestWhatARunHasToShow(t *testing.T) {
	t.Parallel()
	good := report{agents: 9, succeeded: 9, attempts: 12, used: 0.9, refused: 0.05, over: warm, order: 0.5}
	if err := good.judge(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for want, with := range map[string]func(*report){
		"8 of 9 jobs succeeded": func(r *report) { r.succeeded = 8 },
		"1 dead letters":        func(r *report) { r.dead = 1 },
		"2 attempts count":      func(r *report) { r.burned = 2 },
		"3 calls were made":     func(r *report) { r.calls.late = 3 },
		"4 jobs began":          func(r *report) { r.early = 4 },
		"too short":             func(r *report) { r.over = warm - 1 },
		"89.0 % of the allowed": func(r *report) { r.used = 0.89 },
		"6.0 % of the calls":    func(r *report) { r.refused = 0.06 },
		"0.49, less than 0.5":   func(r *report) { r.order = 0.49 },
	} {
		bad := good
		with(&bad)
		if err := bad.judge(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// The first minute and the end of a run do not count for its rates; the order of ends is compared with that of submissions.
func TestTheReport(t *testing.T) {
	t.Parallel()
	s := &samples{pool: &pool{options: options{agents: 4}, api: newAPI(limit{rate: 10, burst: 10}, 1, 0)}}
	for n := range 31 { // five minutes; in the first one half of the calls are refused, and from the fourth on there are none
		at := time.Duration(n) * 10 * time.Second
		now := sample{at: at, finished: max(0, n-20), waiting: float64(n % 7), parked: n % 5}
		now.asked, now.served = 200*min(n, 6)+100*min(max(n-6, 0), 14), 100*min(n, 6)+95*min(max(n-6, 0), 14)
		s.all = append(s.all, now)
	}
	begin := time.Now()
	for i, took := range []time.Duration{3 * time.Minute, 4 * time.Minute, 2 * time.Minute, time.Minute} {
		end := begin.Add(time.Duration(i)*time.Second + took)
		rec := jobs.Record{Item: fmt.Sprint(i), Agent: scripted, Submitted: begin.Add(time.Duration(i) * time.Second), Finished: &end}
		if i == 3 {
			rec.Agent = "claude"
		}
		s.jobs = append(s.jobs, rec)
	}
	var r report
	s.rates(&r)
	s.fairness(&r)
	if math.Abs(r.used-0.95*14/16) > 0.001 || math.Abs(r.refused-0.05) > 0.001 || r.over != 160*time.Second || r.waiting != 6 || r.parks != 4 {
		t.Errorf("rates %+v", r)
	}
	if r.quickest != 2*time.Minute || r.median != 3*time.Minute || r.slowest != 4*time.Minute || math.Abs(r.order+1.0/3) > 0.001 {
		t.Errorf("fairness %+v", r)
	}
}
