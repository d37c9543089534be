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

// A Change is what an agent did to its workspace. The files it names are the
// workspace's and go with it.
type Change struct {
	Patch     string // a file: a patch that applies to Base; "" if there is none
	PatchSize int64
	SHA256    string // of the patch, hexadecimal
	Files     int    // files that the patch changes

	// Bundle is a file with the agent's commits, from Base to Head, as the
	// branch "agent"; "" if it made none. Its last commit has the same files
	// as the patch: what the agent did not commit is a commit of its own.
	Bundle  string
	Commits int
	Head    string

	// Over is the limit that kept some of the files out of the change, which then
	// is not all that the agent did; nil: it is. Skipped names what was left out.
	Over *changes.LimitError

	tree string // of the files after the agent; "" if they were not collected

	// Notable are changed files that deserve a look before anybody works in
	// a checkout that has them: they run code there, or lead elsewhere. Each
	// says why.
	Notable []string
	// Skipped are files that are no part of the patch, though no ignore file
	// names them. Each says why.
	Skipped []string
	// Notes say what is missing in this change as a whole, and why.
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
		if _, still := errors.AsType[*changes.LimitError](err); still { // what was deleted is too much
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

// directory is what is collected of the workspace.
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

// Pick hands the files that patterns name to take, one after the other, by
// their paths as people may see them. It says which were left out, and why.
// Nothing of the attempt may be running any more.
//
// A pattern is a path with the syntax of [path.Match] in its parts and ** for
// any number of directories; a directory stands for all that is in it. What
// ignore files say does not count, nor whether a file was changed. Only regular
// files with one name are taken, no link is followed, and no git directory is
// entered: what the agent could not read is not handed out as its work.
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
