package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Snapshot is what [Workspace.Collect] returns, of a workspace that its agent
// still has. What is written meanwhile may be in it or not, and files are left
// as they are that only their owner could make readable. The files that the
// change names are there until the next Snapshot or Collect.
func (w *Workspace) Snapshot(ctx context.Context) (Change, error) {
	w.inUse = true
	defer func() {
		w.inUse = false
		w.touched() // whatever was found, there may be more already
		w.tip = ""
	}()
	change, err := w.Collect(ctx)
	if err != nil {
		return change, errors.Join(fmt.Errorf("while it is used: %w", err), w.unlock())
	}
	return change, nil
}

// unlock removes the locks of a git that was killed, which would keep the next
// one from its work. Only ours runs there, and it has ended.
func (w *Workspace) unlock() (err error) {
	for _, pattern := range []string{"index*.lock", "git/*.lock", "git/refs/heads/*.lock"} {
		locks, globbed := filepath.Glob(w.path(pattern))
		err = errors.Join(err, globbed)
		for _, lock := range locks {
			err = errors.Join(err, os.Remove(lock))
		}
	}
	return err
}
