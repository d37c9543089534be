package poolpages

import (
	"github.com/penstock-run/penstock/dispatcher/dashboard"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
)

// A budgetRow is a budget with the bar of what was spent of it.
type budgetRow struct{ operation.Budget }

// warned is the share of a budget at which its session is warned, too.
const warned = 0.8

// Percent is how much of it is spent.
func (r budgetRow) Percent() int { return int(100 * r.Share) }

// Tokens is a number of tokens for people.
func (r budgetRow) Tokens(n int64) string { return report.Number(n) }

// Look is the class of its figures.
func (r budgetRow) Look() string {
	switch {
	case r.Share >= 1:
		return "bad"
	case r.Share >= warned:
		return "warn"
	}
	return ""
}

// readBudgets reads the budgets that jobs share, or where a batch is named that of its jobs;
// none where the identity may not see them.
func readBudgets(v *dashboard.Visit, batch string) (rows []budgetRow, err error) {
	if !v.May(operation.Budgets.Row) {
		return nil, nil
	}
	all, err := dashboard.Look(v, operation.Budgets, operation.BudgetRequest{Batch: batch})
	for _, b := range all.Budgets {
		if batch == "" || b.Key == "batch:"+batch {
			rows = append(rows, budgetRow{b})
		}
	}
	return rows, err
}
