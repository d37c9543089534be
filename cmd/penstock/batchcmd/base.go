package batchcmd

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

// pin gives all items of a repository and branch the same base commit: the branch's
// commit at the start of the batch, also when the batch continues. A branch that moves
// meanwhile would make results that cannot be compared.
func (b *batch) pin(ctx context.Context, flags runFlags) error {
	if flags.follow && flags.Uncommitted {
		return cli.Usage("leave one of them out", "--include-uncommitted uses the work tree as it is now, and --follow later commits")
	}
	bases := slices.Clone(b.dir.Manifest().Bases)
	var lacking []jobs.Job // one for each base
	for _, item := range b.dir.Missing() {
		job := b.items[item]
		known := slices.ContainsFunc(bases, isBase(job)) || slices.ContainsFunc(lacking, func(j jobs.Job) bool { return isBase(job)(baseOf(j)) })
		if jobflags.Pinned(job) && !known {
			lacking = append(lacking, job)
		}
	}
	if !flags.Uncommitted {
		for _, job := range lacking {
			jobflags.TellLeftOut(ctx, b.shell, job)
		}
	}
	if flags.follow {
		return nil
	}
	if len(lacking) > 0 {
		found, err := b.findBases(ctx, lacking, flags.Uncommitted)
		if err != nil {
			return err
		}
		bases = append(bases, found...)
		if err := b.dir.Pin(bases); err != nil {
			return err
		}
	}
	for id, job := range b.items {
		if i := slices.IndexFunc(bases, isBase(job)); jobflags.Pinned(job) && i >= 0 {
			job.Repo.Commit = bases[i].Commit
			b.items[id] = job
		}
	}
	return nil
}

func baseOf(j jobs.Job) results.Base { return results.Base{Repo: j.Repo.URL, Ref: j.Repo.Ref} }

// findBases makes the bases of jobs: what their names lead to, or snapshots.
func (b *batch) findBases(ctx context.Context, list []jobs.Job, uncommitted bool) ([]results.Base, error) {
	var bases []results.Base
	for _, job := range list {
		base, err := baseOf(job), error(nil)
		if uncommitted {
			base, err = jobflags.Snapshot(ctx, b.shell, job)
		}
		if err != nil {
			return nil, err
		}
		bases = append(bases, base)
	}
	if uncommitted {
		return bases, nil
	}
	return bases, resolveBases(ctx, bases)
}

func isBase(j jobs.Job) func(results.Base) bool {
	return func(base results.Base) bool { return base.Repo == j.Repo.URL && base.Ref == j.Repo.Ref }
}

// resolveBases asks several repositories at once, and each of them once.
func resolveBases(ctx context.Context, bases []results.Base) error {
	var g errgroup.Group
	g.SetLimit(8)
	var mu sync.Mutex
	var errs []error
	for i := range bases {
		g.Go(func() error {
			commit, err := checkout.Resolve(ctx, bases[i].Repo, bases[i].Ref, os.Environ())
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
			}
			bases[i].Commit = commit
			return nil
		})
	}
	err := errors.Join(append(errs, g.Wait())...)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return cli.Usage("name full commits with --ref, or let each job find its own with --follow", "no commit to begin the batch from: %w", err)
	}
	return nil
}
