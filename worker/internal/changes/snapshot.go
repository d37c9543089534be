package changes

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Snapshot makes a tree of the directory's files, given an earlier one. The new index
// is a file of its own. Snapshot returns which files it left out, and why.
func (d *Directory) Snapshot(ctx context.Context, before State, index string) (after State, left []string, err error) {
	stageDir := d.file("stage")
	if err := d.Trash.Remove(ctx, stageDir); err != nil {
		return State{}, nil, err
	}
	st, err := newStage(stageDir)
	if err != nil {
		return State{}, nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	known, err := d.Listing(before.Index)
	if err != nil {
		return State{}, nil, err
	}
	walk := newWalk(d, before, known, st)
	if d.View != nil {
		return d.overlaid(ctx, walk, before)
	}
	if err := walk.run(ctx, d.Path); err != nil {
		return State{}, nil, err
	}
	if err := disk.CopyFile(index, before.Index); err != nil {
		return State{}, nil, err
	}
	after = State{Tree: before.Tree, Index: index, Over: walk.over}
	if st.changed() {
		after.Tree, err = d.commitStage(ctx, st, index, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// overlaid is the snapshot of an overlay: the upper directory has the changes.
func (d *Directory) overlaid(ctx context.Context, walk *walk, before State) (after State, left []string, err error) {
	upper := &upperWalk{walk: walk, below: lower{View: *d.View, known: walk.known, opener: walk.opener}}
	if err := upper.run(ctx, d.Path); err != nil {
		return State{}, nil, err
	}
	after = before
	after.Over = walk.over
	if walk.stage.changed() {
		after.Tree, err = d.graft(ctx, walk.known, walk.stage, &walk.skipped)
	}
	return after, walk.skipped.list(), err
}

// A State is a tree of files, as an object and as an index, in the host's
// own git directory.
type State struct {
	Tree    string
	Index   string
	Written time.Time   // zero if the index knows nothing of the directory's files
	Forced  []string    // more files that count whatever ignore files say; sorted
	Over    *LimitError // why files are left out of it; nil: none are
}
