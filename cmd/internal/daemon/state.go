package daemon

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/catalog"
	"github.com/penstock-run/penstock/jobs/ledger"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/quota"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/metrics"
)

// state reads what the pool holds now.
func state(ctx context.Context, p *pool.Pool, c *catalog.Catalog) (metrics.State, error) {
	q := p.Queue
	counts, err := c.Queues(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	holds, err := q.Holds().List(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	workers, err := q.Workers().List(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	stored, err := q.Stored(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	backups, err := p.Audit.Backups(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	budgets, err := spending(ctx, ledger.Of(q.Workers()), time.Now())
	if err != nil {
		return metrics.State{}, err
	}
	used, err := p.Quotas.Usage(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	s := metrics.State{
		Queues: queueStats(counts, holds, workers), DeadLetters: stored.DeadLetters, StoreBytes: stored.Bytes, StoreLimit: stored.Limit,
		BackupVerified: backups.Verified, BackupFailed: backups.Failed.At, Budgets: budgets,
	}
	for _, u := range used {
		s.Quotas = append(s.Quotas, metrics.Quota{Key: u.Key, Bytes: u.Unit == quota.StoredBytes, Used: u.Used, Most: u.Most})
	}
	for _, w := range workers {
		if w.Closed == "" {
			s.Claiming++
		} else {
			s.Closed++
		}
	}
	return s, nil
}

// spending gathers what was spent of the budgets of the pool.
func spending(ctx context.Context, l ledger.Ledger, now time.Time) (all []metrics.Spending, err error) {
	budgets, err := l.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	spent, err := l.SpentOfAll(ctx, budgets, now)
	if err != nil {
		return nil, err
	}
	for i, b := range budgets {
		name := b.Key + "/" + b.Per
		if b.USD > 0 {
			all = append(all, metrics.Spending{Budget: name, Unit: "usd", Spent: spent[i].USD, Limit: b.USD})
		}
		if b.Tokens > 0 {
			all = append(all, metrics.Spending{Budget: name, Unit: "tokens", Spent: float64(spent[i].Tokens), Limit: float64(b.Tokens)})
		}
	}
	return all, nil
}

// queueStats gathers what is known of each queue: its jobs, whether it is paused, and the
// slots of the workers that claim its jobs.
func queueStats(counts []operation.Queue, holds []jobs.Hold, workers []why.Worker) []metrics.Stat {
	at := map[string]int{}
	var stats []metrics.Stat
	of := func(queue string) *metrics.Stat {
		i, ok := at[queue]
		if !ok {
			i = len(stats)
			at[queue] = i
			stats = append(stats, metrics.Stat{Queue: queue})
		}
		return &stats[i]
	}
	for _, q := range counts {
		s := of(q.Queue)
		s.Pending, s.Delayed, s.Executing, s.Waiting = q.Pending, q.Delayed, q.Executing, q.Waiting
		s.QuotaWaiting, s.KeyRefused = q.QuotaWaiting, q.KeyRefused
		s.BudgetWaiting, s.BudgetParked = q.BudgetWaiting, q.BudgetParked
		if q.Oldest != nil {
			s.OldestPending = *q.Oldest
		}
	}
	for _, h := range holds {
		if h.Kind == jobs.HoldQueue {
			of(h.Name).Paused = true
		}
	}
	for _, w := range workers {
		if w.Closed != "" {
			continue
		}
		for _, queue := range w.Queues {
			of(queue).Slots += w.Slots
		}
	}
	return stats
}
