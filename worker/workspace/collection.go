package workspace

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/worker/internal/changes"
	"github.com/penstock-run/penstock/worker/internal/disk"
)

// A collection finds what an agent changed, once.
//
//	the agent's commits ──▶ files after the agent ──▶ patch ──▶ bundle
type collection struct {
	*site
	files files
	inUse bool // the agent still has the workspace
}

func (w *Workspace) collection() collection { return collection{site: w.site, files: w.files} }

// run writes the change into files beside the workspace. It replaces those of an earlier
// run.
func (c collection) run(ctx context.Context) (Change, error) {
	change := Change{at: c.site}
	note := c.note
	if c.commit == "" && c.files.strategy() != Hook && c.empty() {
		note = "no patch: the job has no repository"
	}
	if note != "" {
		change.Notes = []string{note}
		return change, nil
	}
	if err := c.collect(ctx, &change); err != nil {
		return Change{}, fmt.Errorf("collect workspace %s: %w", c.id, disk.BlameFull(c.home, err))
	}
	return change, nil
}

func (c collection) collect(ctx context.Context, change *Change) error {
	if err := c.files.check(); err != nil {
		return err
	}
	d := c.directory()
	if d.Untouched() {
		return c.writePatch(ctx, d, c.before, change) // an empty one, which needs no git directory
	}
	if err := c.ownGit(); err != nil {
		return err
	}
	made, err := c.commits(ctx, change)
	if err != nil {
		return err
	}
	before := c.before
	if made != nil {
		before.Forced, change.tip = made.Added, made.Tip
	}
	after, err := c.compare(ctx, d, before, change)
	if limit, ok := errors.AsType[*changes.LimitError](err); ok {
		// A patch of so many bytes fits whatever is in them: it has the old
		// content, too, and in text that is a quarter longer.
		d.Limits.Bytes = min(d.Limits.Bytes, d.Limits.Patch/4)
		after, err = c.compare(ctx, d, before, change)
		change.Over = limit
		if _, still := errors.AsType[*changes.LimitError](err); still { // deleted files exceed the limit
			change.Patch, change.PatchSize, change.SHA256, change.Files = "", 0, "", 0
			return nil
		}
	}
	if err != nil || made == nil {
		return err
	}
	return c.publish(ctx, made, after, change)
}

// compare finds what differs from the state before, and writes the patch.
func (c collection) compare(ctx context.Context, d *changes.Directory, before changes.State, change *Change) (changes.State, error) {
	after, left, err := d.Snapshot(ctx, before, c.path("index.after"))
	if err != nil {
		return after, err
	}
	change.Skipped, change.Over = left, after.Over
	return after, c.writePatch(ctx, d, after, change)
}

func (c collection) writePatch(ctx context.Context, d *changes.Directory, after changes.State, change *Change) error {
	p, err := d.Diff(ctx, c.before, after)
	change.tree, change.Patch, change.PatchSize, change.SHA256, change.Files, change.Notable = after.Tree, p.Path, p.Size, p.Sum, p.Files, p.Notable
	return err
}

// directory describes the agent's directory, and what shows through it.
func (c collection) directory() *changes.Directory {
	d := c.hostDirectory()
	d.Private, d.Foreign, d.View = c.files.private() && !c.inUse, c.files.strategy() == Hook, c.files.view()
	return d
}
