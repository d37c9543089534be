package batchcmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/chosen"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
)

// pullsWithin is how long export waits for the pull requests that it has asked for: the pool
// opens one after the other, and tries again where the forge does not take it at once.
const pullsWithin = 2 * time.Minute

// openAll has the pool open a pull request of each result, also after one that has none.
func openAll(ctx context.Context, shell cli.Shell, c chosen.Results) error {
	if c.Pool == nil {
		return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
			c.Pool = p
			return openAll(ctx, shell, c)
		})
	}
	var asked []jobs.Record
	var errs []error
	items := map[string]string{} // by job
	for _, r := range c.List {
		rec, err := c.Pool.Client.PullRequest(ctx, operation.PullRequestRequest{ID: r.Job})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("item %s: %w", r.ID, err))
			continue
		}
		items[rec.ID] = r.ID
		asked = append(asked, rec)
	}
	if len(asked) > 0 {
		shell.Progressf("%d pull requests are asked for", len(asked))
	}
	end := time.Now().Add(pullsWithin)
	var list []exported
	for _, rec := range asked {
		rec, err := opened(ctx, c.Pool, rec, end)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("item %s: %w", items[rec.ID], err))
			continue
		}
		list = append(list, exported{Job: rec.ID, Item: items[rec.ID], URL: rec.PullRequest.URL, State: string(rec.PullRequest.State)})
	}
	return listExported(shell, list, errs)
}

// opened waits until a pull request is open, or until it is known why it is not.
func opened(ctx context.Context, p *pool.Pool, rec jobs.Record, end time.Time) (jobs.Record, error) {
	for rec.PullRequest != nil && rec.PullDue() && time.Now().Before(end) && ctx.Err() == nil {
		pause.For(ctx, 300*time.Millisecond)
		now, err := p.Client.Get(ctx, rec.ID)
		if err != nil {
			return rec, err
		}
		rec = now
	}
	switch {
	case rec.PullRequest == nil:
		return rec, errors.New("the job goes on: another attempt has begun")
	case rec.PullRequest.State == jobs.PullRefused:
		return rec, fmt.Errorf("the forge refuses its pull request: %s", rec.PullRequest.Message)
	case rec.PullDue() && rec.PullRequest.Message != "":
		return rec, fmt.Errorf("its pull request is not open yet, and the pool tries again: %s", rec.PullRequest.Message)
	}
	return rec, nil
}
