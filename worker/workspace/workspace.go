package workspace

import (
	"context"
	"errors"
	"os"

	"github.com/penstock-run/penstock/sandbox"
)

// A Workspace is the directory that one attempt works in. Its methods must
// not be called at the same time.
type Workspace struct {
	*site
	files    files // nil until they are being made
	contents contents
	keep     bool // a worktree stays for people, when the attempt ends
}

// newWorkspace returns a workspace that no jail has seen yet.
func newWorkspace(at *site, made files) *Workspace {
	return &Workspace{site: at, files: made, contents: contents{home: at.home}}
}

// ID is the id of the request that the workspace was made for.
func (w *Workspace) ID() string { return w.id }

// Dir is the directory of the host that the jail sees as its workspace. Call Show
// before any process may write in it, with a jail or without.
func (w *Workspace) Dir() string { return w.dir }

// Base is the commit that the workspace began from, or "" if there is none.
func (w *Workspace) Base() string { return w.commit }

// Beside returns a directory of the host for the caller alone, which is removed with
// the workspace.
func (w *Workspace) Beside() (string, error) {
	dir := w.path("beside")
	return dir, os.Mkdir(dir, 0o700)
}

// Show lets a jail see the workspace. What is in it is unknown from then on.
func (w *Workspace) Show(spec *sandbox.Spec) {
	w.contents.touched()
	w.files.show(spec)
}

// Strategy is how the files were made; "" where the directory was there
// before.
func (w *Workspace) Strategy() Strategy { return w.files.strategy() }

// Close removes the workspace and the host's files beside it. It refuses, with an
// [UnsavedError], while the workspace may hold changes that were not [Workspace.Saved]:
// then everything stays as it is, for the next sweep. After [Workspace.KeepWhole] it
// also leaves everything, without an error. With isolation none the directory itself
// always stays.
func (w *Workspace) Close() error {
	if w.lock != nil && w.Unsaved() {
		err := errors.Join(&UnsavedError{ID: w.id}, w.leave())
		w.leftover(err)
		return err
	}
	if w.lock != nil && w.contents.stays {
		return w.leave()
	}
	return w.remove()
}

// remove is Close, whatever is in the workspace.
func (w *Workspace) remove() error {
	if w.lock == nil {
		return nil
	}
	if err := w.withdraw(context.Background()); err != nil {
		// Its record must outlive it, for the next sweep.
		err = errors.Join(err, w.leave())
		w.leftover(err)
		return err
	}
	err := errors.Join(w.spaces.trash.Remove(context.Background(), w.home), w.releaseShared())
	if err != nil {
		w.leftover(err)
	}
	err = errors.Join(err, w.lock.Remove())
	w.lock = nil
	return err
}

// withdraw ends the workspace's hold on anything outside of the host's own directories.
func (w *Workspace) withdraw(ctx context.Context) error {
	if w.files == nil {
		return nil
	}
	var kept *contents
	if w.keep {
		kept = &w.contents
	}
	return w.files.release(ctx, kept)
}
