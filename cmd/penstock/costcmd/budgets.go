package costcmd

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/summary"
)

var budgetView = cli.View[operation.Budget]{
	Header: []string{"BUDGET", "PER", "LIMIT", "SPENT", "LEFT", "SHARE", "NEXT"},
	Row: func(b operation.Budget) []string {
		next := ""
		if b.Next != nil {
			next = b.Next.Format(time.RFC3339)
		}
		return []string{
			b.Key, b.Per, amount(b, b.LimitUSD, b.LimitTokens), amount(b, b.SpentUSD, b.SpentTokens), amount(b, b.LeftUSD, b.LeftTokens),
			fmt.Sprintf("%.0f %%", 100*b.Share), next,
		}
	},
	ID: func(b operation.Budget) string { return b.Key },
}

// amount writes dollars and tokens, each where the budget bounds it.
func amount(b operation.Budget, usd float64, tokens int64) string {
	var dollars, count string
	if b.LimitUSD > 0 {
		dollars = fmt.Sprintf("$%.2f", usd)
	}
	if b.LimitTokens > 0 {
		count = fmt.Sprintf("%d tokens", tokens)
	}
	return summary.Join(dollars, count)
}

func showBudgets(ctx context.Context, shell cli.Shell, of operation.BudgetRequest) error {
	return pool.List(ctx, shell, budgetView, func(ctx context.Context, p *pool.Pool) ([]operation.Budget, error) {
		return p.Client.Queues().Budgets(ctx, of)
	})
}
