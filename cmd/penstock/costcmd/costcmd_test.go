package costcmd

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/penstock-run/penstock/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// All attempts count, in the group of their job, the dearest group first.
func TestSum(t *testing.T) {
	at := time.Date(2026, 11, 26, 1, 0, 0, 0, time.FixedZone("", 2*3600)) // the 25th by UTC
	spent := func(usd float64, input int64) jobs.Spent {
		return jobs.Spent{CostUSD: usd, Usage: jobs.Usage{Input: input}}
	}
	records := []jobs.Record{
		{Queue: "a", Agent: "claude", Submitted: at.Add(time.Hour * 48), Claimed: &at, LastAttempt: spent(1, 10), SpentBefore: spent(0.5, 5)},
		{Queue: "b", Agent: "claude", Submitted: at, LastAttempt: spent(4, 40)},
		{Queue: "a", Agent: "codex", Batch: "x", Submitted: at.Add(24 * time.Hour), LastAttempt: spent(0.25, 1)},
		{Queue: "c", Submitted: at},
	}
	for by, want := range map[string][]cost{
		"queue": {{"b", 1, jobs.Usage{Input: 40}, 4}, {"a", 2, jobs.Usage{Input: 16}, 1.75}, {"c", 1, jobs.Usage{}, 0}},
		"agent": {{"claude", 2, jobs.Usage{Input: 55}, 5.5}, {"codex", 1, jobs.Usage{Input: 1}, 0.25}, {"", 1, jobs.Usage{}, 0}},
		"batch": {{"", 3, jobs.Usage{Input: 55}, 5.5}, {"x", 1, jobs.Usage{Input: 1}, 0.25}},
		"day":   {{"2026-11-25", 3, jobs.Usage{Input: 55}, 5.5}, {"2026-11-26", 1, jobs.Usage{Input: 1}, 0.25}},
	} {
		got := sum(records, groups[by])
		if len(got) != len(want) {
			t.Errorf("by %s: %+v", by, got)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("by %s: %+v, want %+v", by, got[i], want[i])
			}
		}
	}
}
