package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// abandoned is the workspace of a dead owner; nil if no agent has had one.
func (s *Spaces) abandoned(id string, l *disk.Lock) (*Workspace, error) {
	hooked, err := readHook(s.homes.dir(id))
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", id, err)
	}
	r, err := readRecord(s.homes.dir(id))
	if errors.Is(err, os.ErrNotExist) {
		if hooked == nil {
			return nil, nil
		}
		at := &site{spaces: s, id: id, home: s.homes.dir(id), lock: l}
		return newWorkspace(at, &hookFiles{at, hooked}), nil
	}
	if err != nil {
		return nil, fmt.Errorf("salvage %s: %w", id, err)
	}
	at := &site{
		spaces: s, id: id, home: s.homes.dir(id), dir: r.Dir, lock: l, isolation: r.Isolation, commit: r.Commit, note: r.Note,
		before: changes.State{Tree: r.Tree, Index: r.Index, Written: r.Written}, worktree: r.Linked,
	}
	if r.Layer != "" {
		at.layer = repocache.LayerAt(r.Layer)
	}
	if r.Base != "" {
		at.base = repocache.BaseAt(r.Base)
	}
	w := newWorkspace(at, r.files(at, hooked))
	w.contents.shown = true
	return w, nil
}

// salvage gives a workspace whose owner is gone to Config.Salvage. An error
// keeps the workspace where it is.
func (s *Spaces) salvage(ctx context.Context, w *Workspace) error {
	if w.contents.storedBefore() || !w.Unsaved() {
		return nil
	}
	if whole, err := wholeOf(w.home); err != nil || whole != nil {
		return err // what can be stored of it is
	}
	if released, err := w.files.released(); err != nil || released {
		return err
	}
	if s.cfg.Salvage == nil {
		return &UnsavedError{ID: w.id}
	}
	if err := s.callSalvage(ctx, w); err != nil {
		return fmt.Errorf("salvage %s: %w", w.id, err)
	}
	if w.Unsaved() {
		return &UnsavedError{ID: w.id}
	}
	return nil
}

// callSalvage calls Config.Salvage with a workspace that can be collected: it holds
// what the files were made of, and removes what the owner left half done.
func (s *Spaces) callSalvage(ctx context.Context, w *Workspace) (err error) {
	if w.base != nil {
		if err := w.base.Hold(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.base.Release()) }()
	}
	if w.Strategy() == Overlay {
		if err := w.base.OpenTemplate(); err != nil {
			return err
		}
	}
	if w.layer != nil {
		if err := w.layer.Hold(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.layer.Release()) }()
	}
	if w.base != nil && w.Strategy() != "" {
		// An interrupted collect may have left half a repository. The files of the
		// state before are in the base; with isolation none they are in there.
		if err := s.trash.Remove(ctx, w.path("git")); err != nil {
			return err
		}
	}
	if err := w.unlockGit(); err != nil {
		return err
	}
	return s.cfg.Salvage(ctx, w)
}
