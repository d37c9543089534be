package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/poolmark"
)

// sweep ends the jails that a kill left of this pool, then salvages and removes workspaces.
func (w *Worker) sweep(ctx context.Context) error {
	jails, err := sandbox.Leftovers(ctx, "", w.cfg.Keepers...)
	if err != nil {
		return err
	}
	var removed []string
	for _, jail := range jails {
		if !poolmark.On(jail.Label, w.cfg.Pool) {
			continue // others on this host have it to sweep, or to look at
		}
		if err := jail.Kill(ctx); err != nil {
			return fmt.Errorf("jail %s: %w", jail.Label, err)
		}
		removed = append(removed, "jail "+jail.Label)
	}
	for _, what := range removed {
		w.log.Info("removed leftover", "what", what)
		w.leftover(what)
	}
	return w.sweepSpaces(ctx)
}

// sweepSpaces salvages and removes the workspaces without an owner. One that cannot be
// salvaged now stays; that must not keep a worker from its work.
func (w *Worker) sweepSpaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	swept, err := w.cfg.Spaces.Sweep(ctx)
	if err != nil {
		return fmt.Errorf("workspaces: %w", err)
	}
	for _, id := range swept.Workspaces {
		w.log.Info("removed leftover", "what", "workspace "+id)
		w.leftover("workspace " + id)
	}
	if swept.Undeleted != nil && ctx.Err() == nil {
		w.log.Warn("what is in the trash cannot be deleted", "err", swept.Undeleted)
		w.leftover("trash")
	}
	for id, why := range swept.Kept {
		w.log.Warn("workspace stays until it can be salvaged; penstock clean shows it", "workspace", id, "err", why)
		w.leftover("workspace " + id)
	}
	return nil
}

// sweepOften sweeps until ctx ends: a workspace stays when an attempt ends
// while the store cannot be reached, or while the disk is full.
func (w *Worker) sweepOften(ctx context.Context) {
	next := time.NewTicker(sweepEvery)
	defer next.Stop()
	for {
		before := w.admission.State()
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-before.Changed:
			if before.Low == nil || w.admission.State().Low != nil {
				continue // it is when the disk has room again that more can be stored
			}
		}
		if err := w.sweepSpaces(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn("sweep", "err", err)
		}
	}
}

// How often the workspaces are swept while the worker works, and how long one
// sweep may take.
const (
	sweepEvery = 5 * time.Minute
	sweepLimit = 5 * time.Minute
)
