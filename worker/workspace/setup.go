package workspace

import (
	"context"
	"errors"
	"time"

	"github.com/penstock-run/penstock/worker/internal/repocache"
)

// Setup brings the output of run into the workspace. Calls with the same key for the
// same commit share the output of one run, and wait for it. With an empty key, with a
// clone, or with a workspace that a jail has seen, the run is for this workspace alone.
// run is called with the workspace that its jails must show, and with no other. Setup
// returns whether it took over another run's output, and how long that run took; it
// returns an error of run as it is.
//
// If run fails, its output is in the workspace, as without sharing; the next job tries
// again.
func (w *Workspace) Setup(ctx context.Context, key string, run func(context.Context, *Workspace) error) (took time.Duration, reused bool, err error) {
	if key == "" || w.Strategy() != Overlay || w.contents.shown {
		return 0, false, run(ctx, w)
	}
	layer, maker, err := w.base.Layer(ctx, key)
	if err != nil {
		return 0, false, err
	}
	switch {
	case layer != nil:
		took, reused = layer.Took, true
	case maker == nil:
		return 0, false, run(ctx, w)
	default:
		layer, err = w.makeLayer(ctx, maker, run)
	}
	w.contents.touched()
	if layer == nil {
		return 0, false, err
	}
	w.layer = layer
	// Without the record the files of the workspace mean nothing.
	return took, reused, errors.Join(err, w.writeRecord(Overlay))
}

// makeLayer runs setup in a directory of its own. If it succeeds that becomes a layer,
// else it becomes the directory of the workspace.
func (s *site) makeLayer(ctx context.Context, maker *repocache.LayerMaker, run func(context.Context, *Workspace) error) (*repocache.Layer, error) {
	dir, err := maker.Begin(ctx)
	if err != nil {
		return nil, err
	}
	at := &site{spaces: s.spaces, id: s.id, dir: dir, base: s.base}
	began := time.Now()
	failed := run(ctx, newWorkspace(at, &overlayFiles{own{at}}))
	if failed == nil {
		layer, err := maker.Publish(time.Since(began))
		if layer != nil {
			return layer, err
		}
		s.leftover(err) // this job can use it all the same
	}
	return nil, errors.Join(failed, maker.GiveUp(ctx, s.dir))
}
