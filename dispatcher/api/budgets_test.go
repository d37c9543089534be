package api_test

import (
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/operation"
)

// The budgets of the pool are listed with what was spent in the present period, and that of
// a batch where it is asked for; a batch without one, or of which the pool knows nothing, has
// none.
func TestBudgets(t *testing.T) {
	t.Parallel()
	p := open(t)
	book := ledger.Of(p.queue.Workers())
	day := ledger.Budget{Key: "queue:default", Amount: ledger.Amount{USD: 50, Tokens: 1000}, Per: "day"}
	pool := ledger.Budget{Key: "pool", Amount: ledger.Amount{USD: 2, Tokens: 1_000_000}, Per: "month"}
	job := jobstest.Job()
	job.Isolation, job.Batch, job.Item, job.Budget = jobs.IsolationNone, "night", "1", jobs.Budget{BatchTokens: 400, USD: 4, Tokens: 100}
	rec, err := p.Submit(t.Context(), job, "test")
	if err != nil {
		t.Fatal(err)
	}
	claim := jobstest.Claim(t, p.queue, "w")
	claim.Spend(jobs.Spent{CostUSD: 1, Usage: jobs.Usage{Input: 75}})
	if _, err := claim.Settle(t.Context(), jobs.BudgetParked.Ended("spent"), nil); err != nil {
		t.Fatal(err)
	}
	night := ledger.Budgets(nil).Of(jobs.Record{Batch: "night"}, job, "")[0]
	for _, err := range []error{
		book.SetBudgets(t.Context(), ledger.Budgets{day, pool}),
		book.Add(t.Context(), day, time.Now(), ledger.Amount{USD: 12.5, Tokens: 900}),
		book.Add(t.Context(), day, time.Now().Add(-48*time.Hour), ledger.Amount{USD: 30}),
		book.Add(t.Context(), pool, time.Now(), ledger.Amount{USD: 2.5}),
		book.Add(t.Context(), night, time.Now(), ledger.Amount{Tokens: 100}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	p.submitted(t) // of no batch
	for batch, want := range map[string]int{"": 2, "night": 3, "other": 2} {
		got, err := request(t, p, operation.Budgets, operation.BudgetRequest{Batch: batch})
		if err != nil || len(got.Budgets) != want {
			t.Fatalf("with batch %q: %+v, err %v", batch, got, err)
		}
		q, all := got.Budgets[0], got.Budgets[1]
		if q.Key != "queue:default" || q.SpentUSD != 12.5 || q.LeftUSD != 37.5 || q.SpentTokens != 900 || q.LeftTokens != 100 || q.Share != 0.9 || q.Next == nil {
			t.Errorf("of the queue: %+v", q)
		}
		if all.LeftUSD != 0 || all.Share != 1.25 || all.LeftTokens != all.LimitTokens {
			t.Errorf("of the pool: %+v", all)
		}
		if batch != "night" {
			continue
		}
		if b := got.Budgets[2]; b.Key != "batch:night" || b.Next != nil || b.LimitTokens != 400 || b.LeftTokens != 300 || b.Share != 0.25 {
			t.Errorf("of the batch with job %s: %+v", rec.ID, b)
		}
	}
	if _, err := request(t, p, operation.Budgets, operation.BudgetRequest{Batch: "no token"}); jobs.Code(err) != jobs.CodeInvalid {
		t.Errorf("a batch of that name: %v", err)
	}
	got, err := request(t, p, operation.Budgets, operation.BudgetRequest{Job: rec.ID})
	if err != nil || len(got.Budgets) != 3 {
		t.Fatalf("with job %s: %+v, err %v", rec.ID, got, err)
	}
	if none, err := request(t, p, operation.Budgets, operation.BudgetRequest{Job: p.submitted(t)}); err != nil || len(none.Budgets) != 2 {
		t.Errorf("with a job that has no budget: %+v, err %v", none, err)
	}
	if b := got.Budgets[2]; b.Key != "job:"+rec.ID || b.LimitUSD != 4 || b.SpentUSD != 1 || b.LeftUSD != 3 || b.LeftTokens != 25 || b.Share != 0.75 || b.Next != nil {
		t.Errorf("of the job: %+v", b)
	}
	report, err := request(t, p, operation.BatchReport, operation.Named{Name: "night"})
	if err != nil || report.LimitTokens != 400 || report.LimitUSD != 0 {
		t.Errorf("the report has %d tokens, %v dollars, err %v", report.LimitTokens, report.LimitUSD, err)
	}
}
