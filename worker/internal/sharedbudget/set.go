package sharedbudget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/budget"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A Set is the budgets that one job shares.
type Set []*Purse

// A Job is one that shares budgets.
type Job struct {
	jobs.Record
	Job  jobs.Job
	API  string   // that its agent uses
	Keys []string // the names of the keys that it may use for that
}

// Afford opens the budgets that a job shares with others, and those of all keys: the worker may get one while
// the job runs. The error is how the job ends where nothing is left of one of them, or of those of all its keys.
func Afford(ctx context.Context, l Ledger, job Job) (Set, error) {
	all, err := l.Budgets(ctx)
	if err != nil {
		return nil, verdict.Failed(jobs.StoreFailed, "open the budgets", err)
	}
	var set Set
	var over []*Purse // of keys
	for _, b := range all.Of(job.Record, job.Job, append(keysOf(all), job.API)...) {
		p := &Purse{ledger: l, of: b}
		if name, ok := strings.CutPrefix(b.Key, "key:"); ok && name != job.API {
			p.key = name
		}
		if p.key != "" && !slices.Contains(job.Keys, p.key) {
			set = append(set, p) // the worker does not have the key yet
			continue
		}
		if _, err := p.Left(ctx); errors.Is(err, budget.ErrSpent) && p.key != "" {
			over = append(over, p)
		} else if errors.Is(err, budget.ErrSpent) {
			return nil, Ended(p, job.Job.Budget, time.Now())
		} else if err != nil {
			return nil, verdict.Failed(jobs.StoreFailed, "read a budget", err)
		}
		set = append(set, p)
	}
	if len(over) > 0 && len(over) == len(job.Keys) {
		return nil, Ended(slices.MinFunc(over, func(a, b *Purse) int { return a.of.Next(time.Now()).Compare(b.of.Next(time.Now())) }), job.Job.Budget, time.Now())
	}
	return set, nil
}

// keysOf returns what the budgets of keys name.
func keysOf(all ledger.Budgets) []string {
	var names []string
	for _, b := range all {
		if name, ok := strings.CutPrefix(b.Key, "key:"); ok {
			names = append(names, name)
		}
	}
	return names
}

// Purses returns the budgets for the gate: those of every call, and by their names those of
// keys.
func (s Set) Purses() (all []gate.Purse, keyed map[string][]gate.Purse) {
	keyed = map[string][]gate.Purse{}
	for _, p := range s {
		if p.key != "" {
			keyed[p.key] = append(keyed[p.key], p)
		} else {
			all = append(all, p)
		}
	}
	return all, keyed
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
// budget's next period, or ends for good where there is none or its own says so.
func Ended(p gate.Purse, own jobs.Budget, now time.Time) error {
	next := time.Time{}
	if shared, ok := p.(*Purse); ok {
		next = shared.of.Next(now)
	}
	if next.IsZero() {
		return verdict.Ended(jobs.BatchBudget, "the budget %s is spent", p.Name())
	}
	if own.OnSpent == jobs.SpentEnds {
		return verdict.Ended(jobs.BudgetExceeded, "the budget %s is spent until %s", p.Name(), next.Format(time.RFC3339))
	}
	end := jobs.BudgetWaiting.Ended(fmt.Sprintf("the budget %s is spent until %s", p.Name(), next.Format(time.RFC3339)))
	end.Wait = next.Sub(now)
	return &verdict.EndedError{Ended: end}
}
