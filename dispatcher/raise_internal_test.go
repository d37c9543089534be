package dispatcher

import (
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
)

// A job is given more than it has spent, and no less than it had.
func TestWhatABudgetIsRaisedTo(t *testing.T) {
	spent := jobs.Record{SpentBefore: jobs.Spent{CostUSD: 1}, LastAttempt: jobs.Spent{CostUSD: 0.5, Usage: jobs.Usage{Input: 900}}}
	both := jobs.Job{Budget: jobs.Budget{USD: 1.5, Tokens: 1000, BatchUSD: 9}}
	for _, c := range []struct {
		more  jobs.Allowance
		job   jobs.Job
		wrong string // empty: it is raised
	}{
		{jobs.Allowance{USD: 2}, both, ""},
		{jobs.Allowance{Tokens: 1000}, both, ""}, // which it has not spent
		{jobs.Allowance{USD: 3, Tokens: 2000}, both, ""},
		{jobs.Allowance{USD: 1.5}, both, "1.5000 are spent"},
		{jobs.Allowance{USD: 1}, both, "not more than its budget"},
		{jobs.Allowance{Tokens: 950}, both, "not more than its budget of 1000"},
		{jobs.Allowance{USD: -1}, both, "no budget"},
		{jobs.Allowance{USD: 2e9}, both, "no budget"},
		{jobs.Allowance{Tokens: 1 << 51}, both, "no budget"},
		{jobs.Allowance{USD: 2}, jobs.Job{Budget: jobs.Budget{Tokens: 5}}, "no budget of that kind"},
		{jobs.Allowance{USD: 2}, jobs.Job{Budget: both.Budget, Signature: &jobs.Signature{}}, "signed"},
	} {
		err := raises(spent, c.job, c.more)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%+v of %+v: %v, want %q", c.more, c.job.Budget, err, c.wrong)
		}
	}
}
