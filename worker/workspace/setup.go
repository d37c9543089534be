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
	if key == "" || w.Strategy() != Overlay || w.shown {
		return 0, false, run(ctx, w)
	}
	layer, maker, err := w.base.Layer(ctx, key)
	switch {
	case err != nil:
		return 0, false, err
	case layer != nil:
		return layer.Took, true, w.put(layer)
	case maker == nil:
		return 0, false, run(ctx, w)
	}
	return 0, false, w.makeLayer(ctx, maker, run)
}

// put puts a layer below a workspace without writes.
func (w *Workspace) put(l *repocache.Layer) error {
	w.layer = l
	w.touched()
	return w.writeRecord() // without the record the files of the workspace mean nothing
}

// makeLayer runs setup in a directory of its own. If it succeeds that becomes
// a layer, else the workspace's own.
func (w *Workspace) makeLayer(ctx context.Context, maker *repocache.LayerMaker, run func(context.Context, *Workspace) error) error {
	dir, err := maker.Begin(ctx)
	if err != nil {
		return err
	}
	at := &site{spaces: w.spaces, id: w.id, dir: dir, base: w.base}
	inside := &Workspace{site: at, files: &overlayFiles{own{at}}}
	began := time.Now()
	failed := run(ctx, inside)
	if failed == nil {
		layer, err := maker.Publish(time.Since(began))
		if layer != nil {
			return errors.Join(err, w.put(layer))
		}
		w.leftover(err) // this job can use it all the same
	}
	w.touched()
	return errors.Join(failed, maker.GiveUp(ctx, w.dir))
}
