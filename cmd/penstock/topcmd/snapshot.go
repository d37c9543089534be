package topcmd

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/why"
)

const (
	// stuckAfter is how long the oldest job of a queue waits before it counts as stuck.
	stuckAfter = time.Minute
	// mostStuck bounds the questions why, which cost the pool more than lists.
	mostStuck = 8
	// mostRunning is a page of jobs, which is more than people read.
	mostRunning = operation.MaxPage
)

// A snapshot is what a pool does at one time.
type snapshot struct {
	Stats   operation.PoolStats `json:"stats"`
	Workers []why.Worker        `json:"workers"`
	Running []jobs.Record       `json:"running"`
	Stuck   []stuck             `json:"stuck"`
}

// A stuck job is the oldest that waits in its queue, with what keeps it.
type stuck struct {
	Job jobs.Record  `json:"job"`
	Why why.Standing `json:"why"`
}

// look reads a snapshot.
func look(ctx context.Context, c *client.Client, window time.Duration) (s snapshot, err error) {
	if s.Stats, err = c.Queues().Stats(ctx, operation.StatsRequest{Window: jobs.Duration(window)}); err != nil {
		return s, err
	}
	if s.Workers, err = c.Workers(ctx); err != nil {
		return s, err
	}
	running, err := client.Ask(ctx, c, operation.List, operation.ListRequest{State: jobs.Executing, Limit: mostRunning})
	if err != nil {
		return s, err
	}
	s.Running, s.Stuck = running.Jobs, []stuck{}
	for _, q := range s.Stats.ByQueue {
		if q.Oldest == nil || s.Stats.At.Sub(*q.Oldest) < stuckAfter || len(s.Stuck) == mostStuck {
			continue
		}
		oldest, err := client.Ask(ctx, c, operation.List, operation.ListRequest{State: jobs.Pending, Queue: q.Queue.Queue, Limit: 1})
		if err != nil {
			return s, err
		}
		for _, rec := range oldest.Jobs {
			standing, err := c.Why(ctx, rec.ID)
			if errors.Is(err, jobs.ErrNotFound) {
				continue // it was removed since
			}
			if err != nil {
				return s, err
			}
			s.Stuck = append(s.Stuck, stuck{rec, standing})
		}
	}
	return s, nil
}
