package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
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

// Collect says what changed since Prepare. Nothing of the attempt may be
// running any more. It may be called again.
func (w *Workspace) Collect(ctx context.Context) (Change, error) {
	note := w.note
	if w.commit == "" && w.Strategy() != Hook && w.empty() {
		note = "no patch: the job has no repository"
	}
	if note != "" {
		w.collected = &Change{Notes: []string{note}}
		return *w.collected, nil
	}
	var change Change
	if err := w.collect(ctx, &change); err != nil {
		return Change{}, fmt.Errorf("collect workspace %s: %w", w.id, disk.BlameFull(w.home, err))
	}
	w.collected = &change
	return change, nil
}

// Empty reports whether there is nothing to keep of a change.
func (c Change) Empty() bool { return c.PatchSize == 0 && c.Bundle == "" }

func (w *Workspace) collect(ctx context.Context, c *Change) error {
	if err := w.files.check(); err != nil {
		return err
	}
	if err := w.ownGit(); err != nil {
		return err
	}
	made, err := w.commits(ctx, c)
	if err != nil {
		return err
	}
	before := w.before
	if made != nil {
		before.Forced = made.Added
	}
	if made != nil {
		w.tip = made.Tip
	}
	after, err := w.compare(ctx, before, c)
	if limit, ok := errors.AsType[*changes.LimitError](err); ok {
		// A patch of so many bytes fits whatever is in them: it has the old
		// content, too, and in text that is a quarter longer.
		w.fewer = w.spaces.cfg.Limits.Patch / 4
		after, err = w.compare(ctx, before, c)
		w.fewer = 0
		c.Over = limit
		if _, still := errors.AsType[*changes.LimitError](err); still { // deleted files exceed the limit
			c.Patch, c.PatchSize, c.SHA256, c.Files = "", 0, "", 0
			return nil
		}
	}
	if err != nil || made == nil {
		return err
	}
	return w.publish(ctx, made, after, c)
}

// compare finds what differs from the state before, and writes the patch.
func (w *Workspace) compare(ctx context.Context, before changes.State, c *Change) (changes.State, error) {
	d := w.directory()
	after, left, err := d.Snapshot(ctx, before, w.path("index.after"))
	if err != nil {
		return after, err
	}
	c.Skipped, c.Over, c.tree = left, after.Over, after.Tree
	p, err := d.Diff(ctx, w.before, after)
	c.Patch, c.PatchSize, c.SHA256, c.Files, c.Notable = p.Path, p.Size, p.Sum, p.Files, p.Notable
	return after, err
}

// directory is the directory that is collected.
func (w *Workspace) directory() *changes.Directory {
	d := w.site.directory()
	d.Private, d.Foreign, d.View = w.files.private() && !w.inUse, w.Strategy() == Hook, w.files.view()
	if w.fewer > 0 {
		d.Limits.Bytes = min(d.Limits.Bytes, w.fewer)
	}
	return d
}

// repo is the host's own git directory for this workspace. What a power cut
// takes of it is collected again, so nothing waits for the disk; and a pack
// stays a pack, which is one file for any number of objects.
func (s *site) repo() git.Repo {
	return git.Repo{
		Dir: s.path("git"), Hold: []*os.File{s.lock.File},
		Set: []string{"core.fsync=none", "fastimport.unpackLimit=1"},
	}
}

// Pick passes the files that match patterns to take, one after the other, by their
// printable paths. It returns which files it left out, and why. All processes of the
// attempt must have ended.
//
// A pattern is a path with the syntax of [path.Match] in its parts and ** for any
// number of directories; a directory stands for all files in it. Ignore files do not
// matter, nor whether a file was changed. Pick takes only regular files with one name,
// follows no link, and enters no git directory: a file that the agent could not read
// must not pass as its work.
func (w *Workspace) Pick(ctx context.Context, patterns []string, take func(path string, content io.Reader) error) (left []string, err error) {
	err = w.files.check()
	var known git.Listing
	if err == nil && w.Strategy() == Overlay {
		known, err = w.catalog(w.base.Index())
	}
	if err == nil {
		d := w.directory()
		d.Private = w.files.private()
		left, err = d.Pick(ctx, known, patterns, take)
	}
	if err != nil {
		return nil, fmt.Errorf("pick files of workspace %s: %w", w.id, err)
	}
	return left, nil
}
