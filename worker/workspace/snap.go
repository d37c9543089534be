package workspace

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// snapshot makes a tree of the directory's files, given one from before. The
// new index is kept in a file of its own. It says what was left out, and why.
func (d *directory) snapshot(ctx context.Context, before state, index string) (after state, left []string, err error) {
	stageDir := d.file("stage")
	if err := d.trash.Remove(ctx, stageDir); err != nil {
		return state{}, nil, err
	}
	st, err := newStage(stageDir)
	if err != nil {
		return state{}, nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	known, err := d.listing(before.index)
	if err != nil {
		return state{}, nil, err
	}
	walk := newWalk(d, before, known, st)
	if d.view != nil {
		return d.overlaid(ctx, walk, before)
	}
	if err := walk.run(ctx, d.path); err != nil {
		return state{}, nil, err
	}
	if err := disk.CopyFile(index, before.index); err != nil {
		return state{}, nil, err
	}
	after = state{tree: before.tree, index: index, over: walk.over}
	if st.changed() {
		after.tree, err = d.commitStage(ctx, st, index, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// overlaid is the snapshot of an overlay: what the upper directory has is
// what changed.
func (d *directory) overlaid(ctx context.Context, walk *walk, before state) (after state, left []string, err error) {
	upper := &upperWalk{walk: walk, below: lower{view: *d.view, known: walk.known, opener: walk.opener}}
	if err := upper.run(ctx, d.path); err != nil {
		return state{}, nil, err
	}
	after = before
	after.over = walk.over
	if walk.stage.changed() {
		after.tree, err = d.graft(ctx, walk.known, walk.stage, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// A state is a tree of files, as an object and as an index, in the host's
// own git directory.
type state struct {
	tree    string
	index   string
	written time.Time   // zero if the index knows nothing of the directory's files
	forced  []string    // more files that count whatever ignore files say; sorted
	over    *LimitError // why files are left out of it; nil: none are
}
