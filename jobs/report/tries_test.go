package report_test

import (
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

// Each try is better than the one after it, wherever they stand.
func TestBest(t *testing.T) {
	t.Parallel()
	order := []report.Item{
		{Outcome: jobs.Success, Files: 1, Added: 1, CostUSD: 9},
		{Outcome: jobs.Success, Files: 1, Added: 1, Removed: 1, CostUSD: 1},
		{Outcome: jobs.Success, Files: 1, Added: 2, CostUSD: 2},
		{Outcome: jobs.Success, CostUSD: 0.1}, // changes nothing
		{Outcome: jobs.Success, Checks: 2, ChecksPassed: 1, Files: 1, Added: 1},
		{Outcome: jobs.Skip},
		{Outcome: jobs.Failure, Checks: 2, ChecksPassed: 2, Files: 1},
		{Outcome: jobs.Cancellation, Checks: 2, ChecksPassed: 1, Files: 1},
	}
	for i := range order {
		for j := i + 1; j < len(order); j++ {
			if n := report.Best([]report.Item{{}, order[i], order[j]}); n != 1 {
				t.Errorf("of %+v and %+v it is the second", order[i], order[j])
			}
			if n := report.Best([]report.Item{order[j], order[i], {}}); n != 1 {
				t.Errorf("of %+v and %+v it is the first", order[j], order[i])
			}
		}
	}
	if n := report.Best([]report.Item{order[3], order[3]}); n != 0 {
		t.Errorf("of equal ones it is %d", n)
	}
	if n := report.Best([]report.Item{{}, {}}); n != -1 {
		t.Errorf("of those that have not ended it is %d", n)
	}
}

// An item fails if all of its tries do; items without tries count as ever.
func TestTriesOfABatch(t *testing.T) {
	t.Parallel()
	b := report.New(report.Report{Batch: "n"})
	for _, e := range []struct {
		of, agent string
		outcome   jobs.Outcome
	}{
		{"1", "", jobs.Failure}, {"1", "", jobs.Success}, {"2", "", jobs.Failure}, {"2", "", jobs.Cancellation}, {"3", "", jobs.Skip}, {"3", "", ""},
		{"4", "", ""}, {"", "", jobs.Success}, {"", "", jobs.Error}, {"5", "claude", jobs.Failure},
	} {
		entry := report.Entry{}
		entry.ID, entry.Of, entry.Agent, entry.Outcome = "x", e.of, e.agent, e.outcome
		b.Add(entry)
	}
	made := b.Report()
	if made.Tries == nil || *made.Tries != (report.Tries{Items: 4, Runs: 7, Solved: 2, Unsolved: 1, Succeeded: 1, Failed: 3}) {
		t.Errorf("tries %+v", made.Tries)
	}
	best := ""
	for _, row := range made.Rows {
		best += map[bool]string{true: "b", false: "-"}[row.Best]
	}
	// Of 2 it is the first, since neither is good.
	if best != "-bb-b-----" || made.Different() != 7 {
		t.Errorf("the best are %s, of %d items", best, made.Different())
	}
	if n := made.Failed(); n != 3 {
		t.Errorf("%d failed", n)
	}
}
