package batchcmd

import (
	"maps"
	"sync"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
)

// A tally counts how the items of a batch end, and says when continuing is pointless.
type tally struct {
	batch *batch
	max   int // failures that are too many; 0 for no bound

	mu       sync.Mutex
	outcomes map[jobs.Outcome]int
	spent    jobs.Spent // also before this run
	limit    jobs.Budget
	row      int // hopeless ends since the last other one
}

func newTally(b *batch, flags runFlags, before results.Totals) *tally {
	return &tally{
		batch: b, max: flags.maxFailures, outcomes: map[jobs.Outcome]int{},
		spent: jobs.Spent{Usage: before.Usage, CostUSD: before.CostUSD}, limit: flags.shared(),
	}
}

// count counts the end of an item. Its error stops the batch.
func (t *tally) count(r jobs.Result) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes[r.Outcome]++
	t.spent = t.spent.Add(jobs.Spent{Usage: r.Usage, CostUSD: r.CostUSD})
	bad := 0
	for outcome, n := range maps.All(t.outcomes) {
		if outcome != jobs.Success && outcome != jobs.Skip {
			bad += n
		}
	}
	switch {
	case t.hopeless(r):
		return cli.Fail(cli.ExitStopped, jobs.Reasons[r.Reason].Advice, "stopped: every job would end like item %s: %s: %s", r.ID, r.Reason, r.Message)
	case t.max > 0 && bad >= t.max:
		return cli.Fail(cli.ExitStopped, "run the same command again to continue", "stopped: %d jobs did not succeed (--max-failures %d)", bad, t.max)
	}
	return nil
}

// luckless is how many items in a row may end for a reason that one worker may
// have and another not, once an item has succeeded.
const luckless = 3

// hopeless reports whether all that is left would end as r did. Its caller
// holds the lock.
func (t *tally) hopeless(r jobs.Result) bool {
	cause := jobs.Reasons[r.Reason]
	if !cause.Hopeless() {
		t.row = 0
		return false
	}
	t.row++
	if cause.Fault == jobs.FaultPool && t.outcomes[jobs.Success] > 0 && t.row < luckless {
		return false
	}
	left := t.batch.dir.Missing()
	for _, item := range left {
		if !cause.Meets(t.batch.items[r.ID], t.batch.items[item]) {
			return false
		}
	}
	return len(left) > 0
}

// words says how many items had which outcome, and what they cost, beginning with a
// comma; nothing before the first end.
func (t *tally) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	words := ""
	if counts := transcript.Tally(t.outcomes); counts != "" {
		words = ", " + counts
	}
	if cost := transcript.Spending(t.spent, t.limit); cost != "" {
		words += ", " + cost
	}
	return words
}
