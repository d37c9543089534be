package mcptools

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// What the owner has set no model can change, and limits can only be lowered.
func TestTheOwnersFrameStands(t *testing.T) {
	owner := jobs.Job{
		Repo: jobs.Repo{URL: "https://example.com/r"}, Agent: jobs.Agent{Name: "claude"}, Check: []string{"make"},
		Budget: jobs.Budget{USD: 2}, Timeout: jobs.Duration(time.Hour), Labels: map[string]string{"team": "a"},
	}
	tools := &tools{cfg: Config{Template: owner}}
	for name, in := range map[string]frame{
		"another repository": {Repo: "https://example.com/other"},
		"another agent":      {Agent: "command"},
		"its own checks":     {Check: []string{"true"}},
		"more money":         {MaxCost: 2.01},
		"negative money":     {MaxCost: -1},
		"more time":          {Timeout: "61m"},
		"no time":            {Timeout: "0s"},
		"a wrong time":       {Timeout: "soon"},
	} {
		if job, err := tools.describe(in); err == nil {
			t.Errorf("%s: the job is %+v", name, job)
		}
	}
	job, err := tools.describe(frame{
		Repo: owner.Repo.URL, Ref: "v1", Model: "small", MaxCost: 1, Timeout: "5m", Labels: map[string]string{"team": "b", "by": "model"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if job.Repo.Ref != "v1" || job.Agent.Model != "small" || job.Budget.USD != 1 || job.Timeout != jobs.Duration(5*time.Minute) ||
		job.Labels["team"] != "a" || job.Labels["by"] != "model" || len(owner.Labels) != 1 {
		t.Errorf("the job is %+v, and the owner's labels %v", job, owner.Labels)
	}
}

// A server of limited jobs and money stops at both, and gives back what was not used.
func TestSpendingIsBounded(t *testing.T) {
	s := spending{bounds: Bounds{Jobs: 3, USD: 5}}
	costs := func(usd float64) jobs.Job { return jobs.Job{Budget: jobs.Budget{USD: usd}} }
	if err := s.reserve(costs(0)); err == nil || !strings.Contains(err.Error(), "5.00 are left") {
		t.Errorf("a job without a budget: %v", err)
	}
	for _, usd := range []float64{3, 1} {
		if err := s.reserve(costs(usd)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.reserve(costs(2)); !errors.Is(err, jobs.ErrForbidden) {
		t.Errorf("more than is left: %v", err)
	}
	s.release(costs(3))
	for _, usd := range []float64{2, 2} {
		if err := s.reserve(costs(usd)); err != nil {
			t.Fatal(err)
		}
	}
	s.release(costs(2))
	s.bounds.USD = 100
	if err := s.reserve(costs(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.reserve(costs(1)); !errors.Is(err, jobs.ErrForbidden) || !strings.Contains(err.Error(), "3 jobs") {
		t.Errorf("a fourth job: %v", err)
	}
}

func TestLogWindow(t *testing.T) {
	event := func(seq uint64, bytes int) jobs.Event {
		data, err := json.Marshal(strings.Repeat("x", bytes-2))
		if err != nil {
			t.Fatal(err)
		}
		return jobs.Event{Seq: seq, Data: data}
	}
	for name, c := range map[string]struct {
		window      logWindow
		events      int
		bytes       int
		first, last uint64
		lines       int
	}{
		"the first of many":           {logWindow{most: 3, first: true}, 10, 10, 1, 3, 3},
		"the last of many":            {logWindow{most: 3}, 10, 10, 8, 10, 3},
		"all of few":                  {logWindow{most: 20}, 10, 10, 1, 10, 10},
		"the last that fit":           {logWindow{most: 200}, 100, mostData, 85, 100, 16},
		"the first that fit, and one": {logWindow{most: 200, first: true}, 100, mostData, 1, 17, 17},
	} {
		w := c.window
		for i := range c.events {
			if !w.take(event(uint64(i+1), c.bytes)) {
				break
			}
		}
		if n := len(w.lines); n != c.lines || w.lines[0].Seq != c.first || w.lines[n-1].Seq != c.last {
			t.Errorf("%s: %d events from %d to %d, want %d from %d to %d", name, n, w.lines[0].Seq, w.lines[n-1].Seq, c.lines, c.first, c.last)
		}
	}
	cut := lineOf(event(1, mostData+1))
	if text, ok := cut.Data.(string); !ok || len(text) != mostData || cut.Of != mostData+1 {
		t.Errorf("a long payload became %d bytes of %d", len(text), cut.Of)
	}
}

func TestWholeLines(t *testing.T) {
	for text, want := range map[string]string{"a\nb": "a\n", "a\n": "a\n", "ab": "ab", "ab\xe2\x82": "ab", "\xff\xff": "\xff\xff"} {
		if got := string(wholeLines([]byte(text))); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
