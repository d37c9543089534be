package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/repocache"
	"github.com/penstock-run/penstock/worker/worktree"
)

// A record is what the next process needs to collect a workspace. It lies beside the
// workspace, where no agent can write.
type record struct {
	Isolation jobs.Isolation     `json:"isolation"`
	Dir       string             `json:"dir"`
	Base      string             `json:"base,omitempty"` // directory of the base
	Commit    string             `json:"commit,omitempty"`
	Note      string             `json:"note,omitempty"`
	Tree      string             `json:"tree,omitempty"`
	Index     string             `json:"index,omitempty"`
	Written   time.Time          `json:"written,omitzero"`
	Over      bool               `json:"overlay,omitempty"`
	Layer     string             `json:"layer,omitempty"` // directory of setup's layer
	Linked    *worktree.Worktree `json:"linked,omitempty"`
}

const recordFile = "record.json"

// writeRecord writes the record. It is the last step of Prepare: a workspace without
// one was never given to an agent, and there is nothing in it to lose.
func (w *Workspace) writeRecord() error {
	r := record{
		Isolation: w.isolation, Dir: w.dir, Commit: w.commit, Note: w.note,
		Tree: w.before.Tree, Index: w.before.Index, Written: w.before.Written, Over: w.Strategy() == Overlay,
	}
	if w.base != nil {
		r.Base = w.base.Dir
	}
	if w.layer != nil {
		r.Layer = w.layer.Dir
	}
	r.Linked = w.worktree
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path("record.new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(w.path("record.new"), w.path(recordFile))
}

func readRecord(home string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// An UnsavedError says that a workspace was not removed, because its contents may not
// be safe anywhere else.
type UnsavedError struct{ ID string }

func (e *UnsavedError) Error() string {
	return "workspace " + e.ID + " stays: its changes are not stored anywhere else yet"
}

// Saved records that the changes of the last Collect are stored elsewhere and were read
// back. It refuses the receipt of other changes.
func (w *Workspace) Saved(r changes.Receipt) error {
	if w.collected == nil {
		return fmt.Errorf("workspace %s was not collected", w.id)
	}
	want := changes.Receipt{Patch: w.collected.SHA256}
	if w.collected.PatchSize == 0 {
		want.Patch, r.Patch = "", "" // nothing, or an empty file
	}
	if w.collected.Bundle != "" {
		sum, err := sumFile(w.collected.Bundle)
		if err != nil {
			return err
		}
		want.Bundle = sum
	}
	if r != want {
		return fmt.Errorf("workspace %s: what was read back is not what was collected: got %+v, want %+v", w.id, r, want)
	}
	// For the sweep after a kill: stored changes need not be stored again.
	if err := os.WriteFile(w.path(savedFile), nil, 0o600); err != nil {
		return err
	}
	w.saved, w.receipt = true, &want
	return nil
}

// savedFile lies beside a workspace whose changes are stored.
const savedFile = "saved"

// touched says that anything may be in the workspace from now on.
func (w *Workspace) touched() {
	w.stays = false
	if w.saved {
		// Of a file that was just made, in a directory of our own.
		_ = os.Remove(w.path(savedFile))
	}
	w.shown, w.collected, w.saved, w.receipt = true, nil, false, nil
}

// Unsaved reports whether the workspace may hold changes that are not safe elsewhere.
// For an overlay without writes the answer costs next to nothing; a clone that a jail
// has seen must be collected first.
func (w *Workspace) Unsaved() bool {
	switch {
	case !w.shown || w.saved || w.note != "": // there is nothing, or it stays where it is
		return false
	case w.collected != nil:
		return !w.collected.Empty()
	case w.Strategy() == Overlay || w.commit == "":
		return !w.empty()
	}
	return true
}

// empty reports whether nothing was written in a directory that was empty, and
// nothing by setup.
func (w *Workspace) empty() bool {
	if w.layer != nil {
		return false
	}
	names, err := disk.Names(w.dir)
	return err == nil && len(names) == 0
}

func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

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
		return &Workspace{site: at, files: &hookFiles{at, hooked}}, nil
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
	return &Workspace{site: at, files: r.files(at, hooked), shown: true}, nil
}

// files are those of the recorded workspace.
func (r record) files(at *site, hooked *hooked) files {
	switch {
	case hooked != nil:
		return &hookFiles{at, hooked}
	case r.Isolation == jobs.IsolationNone && r.Dir == at.path("workspace"):
		return &scratchFiles{own{at}}
	case r.Isolation == jobs.IsolationNone:
		return &inPlaceFiles{own{at}}
	case r.Linked != nil:
		return filesOf(Linked, at)
	case r.Over:
		return filesOf(Overlay, at)
	}
	return filesOf(Clone, at)
}

// salvage gives a workspace whose owner is gone to Config.Salvage. An error
// keeps the workspace where it is.
func (s *Spaces) salvage(ctx context.Context, w *Workspace) (err error) {
	if _, err := os.Lstat(w.path(savedFile)); err == nil || !w.Unsaved() {
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
	if w.base != nil {
		if err := w.base.Hold(ctx); err != nil {
			return fmt.Errorf("salvage %s: %w", w.id, err)
		}
		defer func() { err = errors.Join(err, w.base.Release()) }()
	}
	if w.Strategy() == Overlay {
		if err := w.base.OpenTemplate(); err != nil {
			return fmt.Errorf("salvage %s: %w", w.id, err)
		}
	}
	if w.base != nil && w.Strategy() != "" {
		// An interrupted collect may have left half a repository. The files of the
		// state before are in the base; with isolation none they are in there.
		if err := s.trash.Remove(ctx, w.path("git")); err != nil {
			return fmt.Errorf("salvage %s: %w", w.id, err)
		}
	}
	if w.layer != nil {
		if err := w.layer.Hold(ctx); err != nil {
			return fmt.Errorf("salvage %s: %w", w.id, err)
		}
		defer func() { err = errors.Join(err, w.layer.Release()) }()
	}
	if err := w.unlock(); err != nil {
		return fmt.Errorf("salvage %s: %w", w.id, err)
	}
	if err := s.cfg.Salvage(ctx, w); err != nil {
		return fmt.Errorf("salvage %s: %w", w.id, err)
	}
	if w.Unsaved() {
		return &UnsavedError{ID: w.id}
	}
	return nil
}
