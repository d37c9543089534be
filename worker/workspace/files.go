package workspace

import (
	"context"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/internal/changes"
)

// files are what one strategy made for an attempt.
//
//	prepare ──▶ show ──▶ the jail runs and ends ──▶ check, view: collect ──▶ release
type files interface {
	// strategy is how they were made; "" where the directory was there before.
	strategy() Strategy
	// prepare makes the files, and notes how the agent finds them.
	prepare(ctx context.Context, r Request) error
	// show adds the files to a jail's spec: the directory, and what else they need.
	show(spec *sandbox.Spec)
	// check refuses another directory in the place of one that others can replace.
	check() error
	// view is what shows through the directory; nil: all files are in it.
	view() *changes.View
	// private reports whether the directory is the workspace's own, and goes with it.
	private() bool
	// release ends their hold on anything outside of the host's own directories. A
	// worktree with kept contents stays for people.
	release(ctx context.Context, kept *contents) error
	// released reports whether release had begun when the owner died: then nothing can
	// be lost, and the remaining files may be incomplete, or not ours.
	released() (bool, error)
}

// own are files in a directory of the host that goes with the workspace.
type own struct{ *site }

func (f own) show(spec *sandbox.Spec)                { spec.Workspace = f.dir }
func (own) check() error                             { return nil }
func (own) view() *changes.View                      { return nil }
func (own) private() bool                            { return true }
func (own) release(context.Context, *contents) error { return nil }
func (own) released() (bool, error)                  { return false, nil }
