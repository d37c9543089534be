package daemon

import (
	"context"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/why"
	"github.com/penstock-run/penstock/metrics"
)

// state reads what the pool holds now.
func state(ctx context.Context, q *queue.Queue) (metrics.State, error) {
	rows, err := q.Stats(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	workers, err := q.Workers(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	stored, err := q.Stored(ctx)
	if err != nil {
		return metrics.State{}, err
	}
	s := metrics.State{Queues: queueStats(rows, workers), DeadLetters: stored.DeadLetters, StoreBytes: stored.Bytes, StoreLimit: stored.Limit}
	for _, w := range workers {
		if w.Closed == "" {
			s.Claiming++
		} else {
			s.Closed++
		}
	}
	return s, nil
}

// queueStats gathers the rows of one queue, a row a state, into one, and adds the
// slots of the workers that claim its jobs.
func queueStats(rows []queue.Stat, workers []why.Worker) []metrics.Stat {
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
	for _, row := range rows {
		s := of(row.Queue)
		s.Paused = s.Paused || row.Paused
		switch row.State {
		case jobs.Pending:
			s.Pending, s.OldestPending = row.Jobs, row.Oldest
		case jobs.Delayed:
			s.Delayed = row.Jobs
		case jobs.Executing:
			s.Executing = row.Jobs
		case jobs.Waiting:
			s.Waiting = row.Jobs
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
