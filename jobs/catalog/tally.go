package catalog

import (
	"maps"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A tally counts jobs by queue, or by batch.
type tally struct {
	queues  map[string]*operation.Queue
	batches map[string]*operation.Batch
}

// addQueue adds n jobs to their queue, the oldest of them submitted at a time in
// nanoseconds.
func (t tally) addQueue(of groupKey, n int, oldest int64) {
	q := t.queues[of.queue]
	if q == nil {
		q = &operation.Queue{Queue: of.queue}
		t.queues[of.queue] = q
	}
	switch of.state {
	case jobs.Pending:
		q.Pending += n
		if at := time.Unix(0, oldest).UTC(); q.Oldest == nil || at.Before(*q.Oldest) {
			q.Oldest = &at
		}
	case jobs.Delayed:
		q.Delayed += n
		switch of.held {
		case jobs.QuotaWaiting:
			q.QuotaWaiting += n
		case jobs.KeyRefused:
			q.KeyRefused += n
		case jobs.BudgetWaiting:
			q.BudgetWaiting += n
		case jobs.BudgetParked:
			q.BudgetParked += n
		}
	case jobs.Executing:
		q.Executing += n
	case jobs.Waiting:
		q.Waiting += n
	case jobs.Finished:
		q.Finished += n
	}
}

// addBatch adds n jobs to their batch, the oldest of them submitted at a time in
// nanoseconds.
func (t tally) addBatch(of groupKey, n int, oldest int64) {
	at := time.Unix(0, oldest).UTC()
	b := t.batches[of.batch]
	if b == nil {
		b = &operation.Batch{Batch: of.batch, States: map[jobs.State]int{}, Outcomes: map[jobs.Outcome]int{}, Submitted: at}
		t.batches[of.batch] = b
	}
	if at.Before(b.Submitted) {
		b.Submitted = at
	}
	b.Jobs += n
	b.States[of.state] += n
	if of.state == jobs.Finished {
		b.Outcomes[of.outcome] += n
	}
}

// byQueue returns what was counted, by name.
func (t tally) byQueue() []operation.Queue {
	list := make([]operation.Queue, 0, len(t.queues))
	for _, name := range slices.Sorted(maps.Keys(t.queues)) {
		list = append(list, *t.queues[name])
	}
	return list
}

// byBatch returns what was counted, by name.
func (t tally) byBatch() []operation.Batch {
	list := make([]operation.Batch, 0, len(t.batches))
	for _, name := range slices.Sorted(maps.Keys(t.batches)) {
		list = append(list, *t.batches[name])
	}
	return list
}
