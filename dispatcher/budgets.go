package dispatcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// setBudgets sets the budgets of the pool, and reports whether they have changed.
func setBudgets(ctx context.Context, q *queue.Queue, all ledger.Budgets) (changed bool, err error) {
	if all == nil {
		return false, nil
	}
	book := ledger.Of(q.Workers())
	before, err := book.Budgets(ctx)
	if err != nil {
		return false, err
	}
	return !slices.Equal(before, all), book.SetBudgets(ctx, all)
}

// tryBudgets has the jobs go on that are parked until the next period of a budget, because
// the budgets have changed. One for which there is still no room is parked again before its
// agent starts.
func tryBudgets(ctx context.Context, q *queue.Queue) error {
	parked, err := catalog.New(q).All(ctx, record.Filter{State: jobs.Delayed})
	if err != nil {
		return fmt.Errorf("look for jobs that wait for a budget: %w", err)
	}
	for _, rec := range parked {
		if rec.Reason != jobs.BudgetWaiting {
			continue
		}
		if _, err := q.Wake(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}
