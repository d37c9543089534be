package workspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/git"
)

// A Change is the change that an agent made in its workspace. Its files belong to the
// workspace and are removed with it.
type Change struct {
	Patch     string // a file: a patch that applies to Base; "" if there is none
	PatchSize int64
	SHA256    string // of the patch, hexadecimal
	Files     int    // files that the patch changes

	// Bundle is a file with the agent's commits, from Base to Head, as the branch
	// "agent"; "" if there are none. Its last commit has the same files as the patch:
	// uncommitted changes of the agent become a commit of their own.
	Bundle  string
	Commits int
	Head    string

	// Over is the limit that kept some files out of the change, which is incomplete
	// then; nil: it is complete. Skipped names the missing files.
	Over *changes.LimitError

	at   *site  // of its workspace
	tip  string // the agent's last commit; "" if none were collected
	tree string // of the files after the agent; "" if they were not collected

	// Notable are changed files that people should check before they work in a checkout
	// that has them: they run code there, or point elsewhere. Each has the reason.
	Notable []string
	// Skipped are files that are no part of the patch, though no ignore file
	// names them. Each says why.
	Skipped []string
	// Notes say which parts of the change are missing, and why.
	Notes []string
}

// Empty reports whether there is nothing to keep of a change.
func (c Change) Empty() bool { return c.PatchSize == 0 && c.Bundle == "" }

// Collect says what changed since Prepare. Nothing of the attempt may be
// running any more. It may be called again.
func (w *Workspace) Collect(ctx context.Context) (Change, error) {
	change, err := w.collection().run(ctx)
	if err == nil {
		w.contents.change = &change
	}
	return change, err
}

// Snapshot is what [Workspace.Collect] returns, of a workspace that its agent
// still has. What is written meanwhile may be in it or not, and files are left
// as they are that only their owner could make readable. The files that the
// change names are there until the next Snapshot or Collect.
func (w *Workspace) Snapshot(ctx context.Context) (Change, error) {
	defer w.contents.touched() // whatever was found, there may be more already
	c := w.collection()
	c.inUse = true
	change, err := c.run(ctx)
	if err != nil {
		return change, errors.Join(fmt.Errorf("while it is used: %w", err), w.unlockGit())
	}
	return change, nil
}

// A Picked is a file that [Workspace.Pick] passes on.
type Picked = changes.Picked

// Pick passes the files that match patterns to take, one after the other. It returns which files it left out, and why. All processes of the
// attempt must have ended.
//
// A pattern is a path with the syntax of [path.Match] in its parts and ** for any
// number of directories; a directory stands for all files in it. Ignore files do not
// matter, nor whether a file was changed. Pick takes only regular files with one name,
// follows no link, and enters no git directory: a file that the agent could not read
// must not pass as its work.
func (w *Workspace) Pick(ctx context.Context, patterns []string, take func(Picked) error) (left []string, err error) {
	err = w.files.check()
	var known git.Listing
	if err == nil && w.Strategy() == Overlay {
		known, err = w.catalog(w.base.Index())
	}
	if err == nil {
		left, err = w.collection().directory().Pick(ctx, known, patterns, take)
	}
	if err != nil {
		return nil, fmt.Errorf("pick files of workspace %s: %w", w.id, err)
	}
	return left, nil
}
