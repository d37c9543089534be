package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/sandbox/exectest"
	"github.com/penstock-run/penstock/worker/agent/agenttest"
)

// callAlways calls the model API until its worker ends it.
const callAlways = `while :; do curl -sS -m 60 -o /dev/null -H "x-api-key: $ANTHROPIC_API_KEY" \
	-d '{"model":"claude-opus-5","max_tokens":1000,"messages":[{"role":"user","content":"x"}]}' "$ANTHROPIC_BASE_URL/v1/messages"; done`

// A budget of a queue holds for all its jobs together, by no more than one answer for each
// that runs. Then they wait for the next period, no further one begins, and none of that
// is counted against a job. Other queues go on.
func TestJobsOfAQueueShareABudget(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	const each = 0.0625
	f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 500})
	f.cfg.Slots = 3
	const limit = 1.0
	book := ledger.Of(f.eye.queue.Workers())
	day := ledger.Budget{Key: "queue:default", Amount: ledger.Amount{USD: limit}, Per: "day"}
	f.must(book.SetBudgets(t.Context(), ledger.Budgets{day, {Key: "pool", Amount: ledger.Amount{Tokens: 1 << 40}, Per: "hour"}}))
	defer f.work()()
	var ids []string
	for range 3 {
		ids = append(ids, f.submit(f.job(callAlways)).ID)
	}
	waits := func(id string) jobs.Record {
		var rec jobs.Record
		f.until("a job waits", func() bool {
			var err error
			rec, err = f.eye.queue.Get(t.Context(), id)
			f.must(err)
			return rec.State == jobs.Delayed
		})
		if rec.Reason != jobs.BudgetWaiting || rec.Counted != 0 || rec.Lost != 0 || rec.NotBefore == nil || rec.NotBefore.Sub(day.Next(time.Now())).Abs() > time.Minute {
			t.Errorf("%s %s (%s) until %v, %d counted, %d lost", rec.State, rec.Reason, rec.Message, rec.NotBefore, rec.Counted, rec.Lost)
		}
		return rec
	}
	for _, id := range ids {
		waits(id)
	}
	calls := len(model.Requests())
	if cost := float64(calls) * each; cost < limit || cost > limit+3*each {
		t.Errorf("%d calls cost %.3f of %.3f", calls, cost, limit)
	}
	if got, err := book.Spent(t.Context(), day, time.Now()); err != nil || fmt.Sprintf("%.3f", got.USD) != fmt.Sprintf("%.3f", float64(calls)*each) {
		t.Errorf("the broker has %+v of %d calls, err %v", got, calls, err)
	}
	rec := waits(f.submit(f.job(callAlways)).ID)
	if n := len(model.Requests()); n != calls {
		t.Errorf("a job that began later made %d calls", n-calls)
	}
	standing := why.Of(why.Facts{Now: time.Now(), Record: rec})
	if !strings.Contains(standing.Message, "budget_waiting") || !strings.Contains(standing.Message, "queue:default=1/day") {
		t.Errorf("why: %s", standing.Message)
	}
}

// A budget of a batch ends its jobs for good: the one that spends it, and those that
// begin later.
func TestJobsOfABatchShareABudget(t *testing.T) {
	t.Parallel()
	exectest.Need(t, "curl")
	f, model := newSpender(t, agenttest.Reply{Input: 10_000, Output: 500})
	job := f.job(callAlways)
	job.Batch, job.Budget.BatchTokens = "night", 100_000 // ten calls
	rec, events := f.run(job)
	calls := len(model.Requests())
	warned, exceeded := dataOf[event.BudgetWarned](t, events, jobs.BudgetWarned), dataOf[event.BudgetExceeded](t, events, jobs.BudgetSpent)
	if len(warned) != 1 || len(exceeded) != 1 || warned[0].Of != "batch:night=100000tokens" || warned[0].Tokens < 80_000 || warned[0].Of != exceeded[0].Of {
		t.Errorf("warned %+v, exceeded %+v", warned, exceeded)
	}
	if rec.Reason != jobs.BatchBudget || rec.Outcome != jobs.Failure || calls != 10 {
		t.Errorf("%s (%s) after %d calls", rec.Reason, rec.Message, calls)
	}
	job.Key = "another"
	if rec, _ = f.run(job); rec.Reason != jobs.BatchBudget || len(model.Requests()) != calls {
		t.Errorf("another: %s (%s), %d calls", rec.Reason, rec.Message, len(model.Requests())-calls)
	}
}
