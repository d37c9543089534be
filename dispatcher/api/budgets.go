package api

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// budgets lists the budgets of the pool, and those of a batch and of a job.
func (n counts) budgets(ctx context.Context, _ caller, r operation.BudgetRequest) (operation.BudgetList, error) {
	answer := operation.BudgetList{Budgets: []operation.Budget{}}
	kept := ledger.Of(n.queue.Workers())
	all, err := kept.Budgets(ctx)
	if err != nil {
		return answer, err
	}
	if r.Batch != "" {
		limit, err := n.batchLimit(ctx, r.Batch)
		if err != nil {
			return answer, err
		}
		all = append(all, limit...)
	}
	now := time.Now()
	spent, err := kept.SpentOfAll(ctx, all, now)
	if err != nil {
		return answer, err
	}
	for i, b := range all {
		answer.Budgets = append(answer.Budgets, budgetOf(b, spent[i], now))
	}
	if r.Job == "" {
		return answer, nil
	}
	own, err := n.ofJob(ctx, r.Job, now)
	answer.Budgets = append(answer.Budgets, own...)
	return answer, err
}

// ofJob is what is left of a job's own budget; none: it has no such.
func (n counts) ofJob(ctx context.Context, id string, now time.Time) ([]operation.Budget, error) {
	rec, err := n.queue.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	job, err := n.queue.Job(ctx, rec.ID)
	if err != nil {
		return nil, err
	}
	limit := rec.Allowed(job).Budget
	if limit.USD == 0 && limit.Tokens == 0 {
		return nil, nil
	}
	spent := rec.SpentBefore.Add(rec.LastAttempt)
	own := ledger.Budget{Key: "job:" + rec.ID, Amount: ledger.Amount{USD: limit.USD, Tokens: limit.Tokens}}
	return []operation.Budget{budgetOf(own, ledger.Amount{USD: spent.CostUSD, Tokens: spent.Usage.Total()}, now)}, nil
}

// batchLimit is the budget that the newest job of a batch names for all of them; none: the
// batch has no budget, or the pool has no job of it.
func (n counts) batchLimit(ctx context.Context, batch string) (ledger.Budgets, error) {
	newest, _, err := n.catalog.List(ctx, catalog.Selection{Filter: record.Filter{Batch: batch}, Newest: true, Limit: 1})
	if err != nil || len(newest) == 0 {
		return nil, err
	}
	job, err := n.queue.Job(ctx, newest[0].ID)
	if errors.Is(err, jobs.ErrNotFound) { // it was purged meanwhile
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ledger.Budgets(nil).Of(newest[0], job, ""), nil
}

// budgetOf says what is left of a budget.
func budgetOf(b ledger.Budget, spent ledger.Amount, now time.Time) operation.Budget {
	u := operation.Budget{
		Key: b.Key, Per: b.Per, LimitUSD: b.USD, SpentUSD: spent.USD, LimitTokens: b.Tokens, SpentTokens: spent.Tokens,
		LeftUSD: max(0, b.USD-spent.USD), LeftTokens: max(0, b.Tokens-spent.Tokens),
	}
	if b.USD > 0 {
		u.Share = spent.USD / b.USD
	}
	if b.Tokens > 0 {
		u.Share = max(u.Share, float64(spent.Tokens)/float64(b.Tokens))
	}
	if next := b.Next(now); !next.IsZero() {
		u.Next = &next
	}
	return u
}
