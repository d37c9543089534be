package jobs_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox/goldentest"
)

var update = flag.Bool("update", false, "write docs/reference/reasons.md")

const reasonsHead = `# States, outcomes and reasons

This page is made from the program: ` + "`make generate`" + ` writes it. ` + "`penstock job get ID`" + ` shows the row of a job's
reason under ` + "`cause`" + `.

## States

| state | meaning |
|---|---|
| ` + "`pending`" + ` | can be claimed by a worker |
| ` + "`delayed`" + ` | waits for a time: ` + "`run_at`" + `, or a back-off before the next attempt |
| ` + "`executing`" + ` | an attempt holds the lease |
| ` + "`waiting`" + ` | parked; no slot is held |
| ` + "`finished`" + ` | has an outcome |

## Outcomes

| outcome | meaning |
|---|---|
| ` + "`success`" + ` | the agent ended well, every check passed, the result is stored |
| ` + "`failure`" + ` | the agent ended, its result is not good |
| ` + "`error`" + ` | something around the agent failed |
| ` + "`timeout`" + ` | a limit of time was reached |
| ` + "`cancellation`" + ` | a user or a client asked for it |
| ` + "`skip`" + ` | was not run, and need not be |

## Reasons

*Retry* says when another attempt begins: never, at once elsewhere, or later, after a back-off of 2 s that doubles up to
5 min, with up to a quarter more so that jobs which failed together do not come back together. *Charged to* says what
the attempt uses up: an ` + "`attempt`" + ` of ` + "`retry.max_attempts`" + ` (the job's doing), a ` + "`death`" + ` (a worker died under it: %d and
it is given up; an attempt that answers one more prompt of its conversation begins that count anew), a failure of a ` + "`host`" + ` (%d), a ` + "`loss`" + ` (the job did not fail: a shutdown, a quota; %d,
and of those that are the provider's %d for one reason, the setting ` + "`max_refusals`" + `), or ` + "`nothing`" + `. If the model's API
said when to come again (` + "`retry-after`" + `, in seconds or a date), the next attempt begins then, and not by the back-off, but
within %.0f hours. *Fault* says who can fix it. *Shared by*
says which other jobs would end the same way: a batch stops when all of its remaining jobs share the reason.

| reason | outcome | retry | charged to | fault | shared by the same | what to do |
|---|---|---|---|---|---|---|
`

// TestReference holds docs/reference/reasons.md against the table.
func TestReference(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, reasonsHead, jobs.MaxDeaths, jobs.MaxHostFailures, jobs.MaxLost, jobs.DefaultRefusals, jobs.MaxRetryAfter.Hours())
	for _, reason := range slices.Sorted(maps.Keys(jobs.Reasons)) {
		c := jobs.Reasons[reason]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", reason, c.Outcome, c.Retry, c.Charge, c.Fault, c.Scope, c.Advice)
	}
	goldentest.Compare(t, "../docs/reference/reasons.md", b.String(), *update)
}
