package workspace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// Swept is the result of a sweep.
type Swept struct {
	Workspaces []string // ids
	Bases      int
	Layers     int // of setup; includes those that went with their bases
	Trash      int // entries of the trash that earlier processes left
	// Kept says for each workspace without an owner that stays, why. Its work could not
	// be salvaged; the next sweep tries again.
	Kept map[string]error
	// Worktrees are the worktrees of users' repositories that were unused for
	// Limits.WorktreeAge, by their path: nil was removed, an error says why the
	// worktree stays.
	Worktrees map[string]error
	// Undeleted says why entries of the trash still exist. They take space, and are
	// otherwise harmless.
	Undeleted error
}

// Sweep removes the leftovers of dead processes, after Config.Salvage has stored the
// changes in their workspaces, and unused bases. It touches nothing that is in use, so
// any number of workers may sweep at any time. An entry that cannot be removed does not
// stop the others.
func (s *Spaces) Sweep(ctx context.Context) (Swept, error) {
	swept, err := s.sweep(ctx, false)
	swept.Undeleted = s.trash.Empty(ctx)
	return swept, err
}

// Preview says what Sweep would remove, and removes nothing. It calls Config.Salvage
// like Sweep, to see whether it can store the changes of a workspace; Salvage need not
// store them.
func (s *Spaces) Preview(ctx context.Context) (Swept, error) { return s.sweep(ctx, true) }

func (s *Spaces) sweep(ctx context.Context, dry bool) (Swept, error) {
	swept := Swept{Kept: map[string]error{}}
	trash, listing := disk.Names(s.trash.Dir)
	swept.Trash = len(trash)
	ids := map[string]bool{}
	spent, err := s.homes.spent(s.cfg.Limits)
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
	swept.Bases, swept.Layers, err = s.cache.Sweep(ctx, func() (map[string]bool, error) { return s.homes.needed(leaving) }, keep, dry)
	return swept, errors.Join(errors.Join(errs...), err, listing)
}

// sweepJob salvages and removes one workspace. One that was kept whole has
// nothing more to be salvaged, and goes when it is spent.
func (s *Spaces) sweepJob(ctx context.Context, id string, spent, dry bool) (removed bool, kept, err error) {
	l, err := s.homes.lock(id)
	if errors.Is(err, disk.ErrLocked) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, err
	}
	if whole, _ := wholeOf(s.homes.dir(id)); whole != nil && !spent {
		return false, whole, l.Release()
	}
	if dry {
		defer func() { err = errors.Join(err, l.Release()) }()
		if _, err := os.Lstat(s.homes.dir(id)); err != nil {
			return false, nil, nil
		}
	}
	w, err := s.abandoned(id, l)
	if dry {
		if err == nil && w != nil {
			if err = s.salvage(ctx, w); w.contents.change != nil && isUnsaved(err) {
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
	taken, err := s.trash.Take(s.homes.dir(id))
	return taken != "", nil, errors.Join(err, l.Remove())
}

func isUnsaved(err error) bool {
	_, ok := errors.AsType[*UnsavedError](err)
	return ok
}
