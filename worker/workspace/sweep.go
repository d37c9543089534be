package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// Swept is what a sweep removed.
type Swept struct {
	Workspaces []string // ids
	Bases      int
	Layers     int // of setup; those that went with their bases count, too
	Trash      int // entries of the trash that earlier processes left
	// Kept says of each workspace that nobody owns and that stays, why. Its
	// work could not be salvaged; the next sweep tries again.
	Kept map[string]error
	// Worktrees are those of users' repositories that were not touched for
	// Limits.WorktreeAge, by their path: nil was removed, an error says why the
	// worktree stays.
	Worktrees map[string]error
	// Undeleted says why entries of the trash are still there. They take room,
	// and are in nobody's way.
	Undeleted error
}

// Sweep removes what processes that are gone have left, after Config.Salvage
// has taken what is in their workspaces, and bases that nobody needs. It
// touches nothing that is in use, so any number of workers may sweep at any
// time. What cannot be removed does not keep the rest.
func (s *Spaces) Sweep(ctx context.Context) (Swept, error) {
	swept, err := s.sweep(ctx, false)
	swept.Undeleted = s.trash.Empty(ctx)
	return swept, err
}

// Preview says what Sweep would remove, and removes nothing. Config.Salvage is
// called as by Sweep, to see whether it can take what is in a workspace; it
// need not store it.
func (s *Spaces) Preview(ctx context.Context) (Swept, error) { return s.sweep(ctx, true) }

func (s *Spaces) sweep(ctx context.Context, dry bool) (Swept, error) {
	swept := Swept{Kept: map[string]error{}}
	trash, listing := disk.Names(s.trash.Dir)
	swept.Trash = len(trash)
	ids := map[string]bool{}
	spent, err := s.spent()
	errs := []error{err}
	for _, sub := range []string{"jobs", "locks"} {
		names, err := disk.Names(filepath.Join(s.cfg.Dir, sub))
		errs = append(errs, err)
		for _, name := range names {
			ids[name] = true
		}
	}
	for id := range ids {
		removed, kept, err := s.sweepJob(ctx, id, spent[id], dry)
		if removed {
			swept.Workspaces = append(swept.Workspaces, id)
		}
		if kept != nil {
			swept.Kept[id] = kept
		}
		errs = append(errs, err)
	}
	slices.Sort(swept.Workspaces)
	swept.Worktrees, err = s.sweepWorktrees(ctx, dry)
	errs = append(errs, err)
	var leaving []string
	if dry {
		leaving = swept.Workspaces
	}
	keep := repocache.Retention{Age: s.cfg.Limits.BaseAge, Bytes: s.cfg.Limits.BaseBytes}
	swept.Bases, swept.Layers, err = s.cache.Sweep(func() (map[string]bool, error) { return s.needed(leaving) }, keep, dry)
	return swept, errors.Join(errors.Join(errs...), err, listing)
}

// sweepJob salvages and removes one workspace. One that was kept whole has
// nothing more to be salvaged, and goes when it is spent.
func (s *Spaces) sweepJob(ctx context.Context, id string, spent, dry bool) (removed bool, kept, err error) {
	l, err := disk.TryLock(s.lockFile(id), syscall.LOCK_EX)
	if errors.Is(err, disk.ErrLocked) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	if whole, _ := wholeOf(s.jobDir(id)); whole != nil && !spent {
		return false, whole, l.Release()
	}
	if dry {
		defer func() { err = errors.Join(err, l.Release()) }()
		if _, err := os.Lstat(s.jobDir(id)); err != nil {
			return false, nil, nil
		}
	}
	w, err := s.abandoned(id, l)
	if dry {
		if err == nil && w != nil {
			if err = s.salvage(ctx, w); w.collected != nil && isUnsaved(err) {
				err = nil // it could be collected, and was not stored for now
			}
		}
		return err == nil, err, nil
	}
	if err == nil && w != nil {
		if err = s.salvage(ctx, w); err == nil {
			err = w.withdraw(ctx)
		}
	}
	if err != nil {
		return false, err, l.Release()
	}
	taken, err := s.trash.Take(s.jobDir(id))
	return taken != "", nil, errors.Join(err, l.Remove())
}

func isUnsaved(err error) bool {
	_, ok := errors.AsType[*UnsavedError](err)
	return ok
}
