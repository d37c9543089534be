package sharedbudget

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A Set is the budgets that one job shares.
type Set []*Purse

// Afford opens the budgets that a job shares with others, whose agent uses an API. The
// error is how the job ends where nothing is left of one of them.
func Afford(ctx context.Context, l Ledger, rec jobs.Record, job jobs.Job, api string) (Set, error) {
	all, err := l.Budgets(ctx)
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "open the budgets", err)
	}
	var set Set
	for _, b := range all.Of(rec, job, api) {
		p := &Purse{ledger: l, of: b}
		if _, err := p.Left(ctx); errors.Is(err, budget.ErrSpent) {
			return nil, Ended(p, time.Now())
		} else if err != nil {
			return nil, verdict.Failed(jobs.StoreFailed, "read a budget", err)
		}
		set = append(set, p)
	}
	return set, nil
}

// Purses returns the budgets for the gate.
func (s Set) Purses() []gate.Purse {
	var all []gate.Purse
	for _, p := range s {
		all = append(all, p)
	}
	return all
}

// Flush adds what the broker does not know yet, when the job has ended.
func (s Set) Flush() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, p := range s {
		p.flush(ctx)
	}
}

// Ended is how a job ends because a budget is spent that it shares: it waits for the
// budget's next period, or ends for good where there is none.
func Ended(p gate.Purse, now time.Time) error {
	next := time.Time{}
	if shared, ok := p.(*Purse); ok {
		next = shared.of.Next(now)
	}
	if next.IsZero() {
		return verdict.Ended(jobs.BatchBudget, "the budget %s is spent", p.Name())
	}
	end := jobs.BudgetWaiting.Ended(fmt.Sprintf("the budget %s is spent until %s", p.Name(), next.Format(time.RFC3339)))
	end.Wait = next.Sub(now)
	return &verdict.EndedError{Ended: end}
}
