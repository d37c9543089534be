package workspace

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/worktree"
)

// sweepWorktrees completes what killed processes have left unfinished in users'
// repositories, and removes the worktrees that were unused for long.
func (s *Spaces) sweepWorktrees(ctx context.Context, dry bool) (map[string]error, error) {
	if s.cfg.Worktrees == "" {
		return nil, nil
	}
	trees, err := worktree.Open(s.cfg.Worktrees)
	if err != nil {
		return nil, err
	}
	records, err := trees.List()
	errs := []error{err}
	stale := map[string]error{}
	for _, wt := range records {
		switch {
		case ctx.Err() != nil:
			return stale, context.Cause(ctx)
		case wt.Ready() && s.cfg.Limits.WorktreeAge > 0 && time.Since(wt.Touched()) > s.cfg.Limits.WorktreeAge:
			stale[wt.Path] = s.sweepStale(ctx, trees, wt, dry)
		case !dry && (wt.Half() || wt.Working() && !disk.Exists(filepath.Join(s.homes.dir(wt.Attempt), recordFile))):
			errs = append(errs, s.settleWorktree(ctx, trees, wt))
		}
	}
	return stale, errors.Join(errs...)
}

// settleWorktree completes an unfinished step. A worktree that works for an attempt
// without a record has never had an agent.
func (s *Spaces) settleWorktree(ctx context.Context, trees *worktree.Set, wt worktree.Worktree) (err error) {
	if !wt.Working() {
		return trees.Settle(ctx, wt.Repo)
	}
	l, err := s.homes.lock(wt.Attempt)
	if errors.Is(err, disk.ErrLocked) {
		return nil // it is being made
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Remove()) }()
	// The attempt may have written its record, or ended, since we looked.
	if disk.Exists(filepath.Join(s.homes.dir(wt.Attempt), recordFile)) {
		return nil
	}
	return trees.Withdraw(ctx, wt.Repo, wt.Attempt)
}

func (s *Spaces) sweepStale(ctx context.Context, trees *worktree.Set, wt worktree.Worktree, dry bool) error {
	if wt.Stored != nil && *wt.Stored != (changes.Receipt{}) {
		if s.cfg.Stored == nil {
			return &worktree.KeptError{Path: wt.Path, Why: "has changes of a job, and whether they are stored cannot be known here"}
		}
		stored, err := s.cfg.Stored(ctx, wt.Attempt, *wt.Stored)
		if err == nil && !stored {
			err = errors.New("its result is not in the store any more")
		}
		if err != nil {
			return &worktree.KeptError{Path: wt.Path, Why: fmt.Sprintf("has changes of a job that are not safe elsewhere: %v", err)}
		}
	}
	if dry {
		return trees.Examine(ctx, wt)
	}
	_, err := trees.Remove(ctx, wt, false)
	return err
}
