package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/worker/internal/changes"
)

// contents are what is known of the files in a workspace, and whether they are safe
// elsewhere.
//
//	as made ──Show──▶ unknown ──Collect──▶ collected ──Saved, KeepWhole──▶ saved
//	                     ▲                     │                             │
//	                     └─────────Show────────┴─────────────────────────────┘
type contents struct {
	home    string           // the host's directory around the workspace
	shown   bool             // a jail may have written in it since it was made
	change  *Change          // of the last Collect; nil after another Show
	saved   bool             // the change is safe elsewhere, or the workspace stays
	receipt *changes.Receipt // of the change, if it is stored
	stays   bool             // Close leaves it, though all that can be is safe elsewhere
}

// savedFile lies beside a workspace whose changes are stored.
const savedFile = "saved"

// touched says that anything may be in the workspace from now on.
func (c *contents) touched() {
	if c.saved {
		// Of a file that was just made, in a directory of our own.
		_ = os.Remove(filepath.Join(c.home, savedFile))
	}
	*c = contents{home: c.home, shown: true}
}

// stored says that the change is in the store, also to the sweep after a kill: stored
// changes need not be stored again.
func (c *contents) stored(r changes.Receipt) error {
	if err := os.WriteFile(filepath.Join(c.home, savedFile), nil, 0o600); err != nil {
		return err
	}
	c.saved, c.receipt = true, &r
	return nil
}

// storedBefore reports whether a dead owner has said that the change is in the store.
func (c *contents) storedBefore() bool {
	_, err := os.Lstat(filepath.Join(c.home, savedFile))
	return err == nil
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
	if w.contents.change == nil {
		return fmt.Errorf("workspace %s was not collected", w.id)
	}
	want, err := w.contents.change.receipt()
	if err != nil {
		return err
	}
	if want.Patch == "" {
		r.Patch = "" // nothing, or an empty file
	}
	if r != want {
		return fmt.Errorf("workspace %s: what was read back is not what was collected: got %+v, want %+v", w.id, r, want)
	}
	return w.contents.stored(want)
}

// Unsaved reports whether the workspace may hold changes that are not safe elsewhere.
// For an overlay without writes the answer costs next to nothing; a clone that a jail
// has seen must be collected first.
func (w *Workspace) Unsaved() bool {
	switch known := w.contents; {
	case !known.shown || known.saved || w.note != "": // there is nothing, or it stays where it is
		return false
	case known.change != nil:
		return !known.change.Empty()
	case w.Strategy() == Overlay || w.commit == "":
		return !w.empty()
	}
	return true
}

// receipt returns the hashes that the files of the change must have when they are read
// back.
func (c *Change) receipt() (r changes.Receipt, err error) {
	if c.PatchSize > 0 {
		r.Patch = c.SHA256
	}
	if c.Bundle != "" {
		r.Bundle, err = sumFile(c.Bundle)
	}
	return r, err
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
