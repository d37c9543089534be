package outcome

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/workspace"
)

// The names of the artifacts of an attempt without a result. They differ from those
// of a result, so that the two cannot be confused.
const (
	salvagePatch  = "salvage.patch"
	salvageBundle = "salvage.bundle"
)

// SalvageLimit bounds the salvage at the end of an attempt, which occupies a slot. A
// longer salvage is left to a sweep, which has as long as collecting a result may take.
const SalvageLimit = time.Minute

// Salvage saves the attempt's changes. If they are already stored, as the result of a
// failed attempt, it only records them.
func (o *Outcome) Salvage(ctx context.Context, space *workspace.Workspace, why jobs.Reason) error {
	if o.stored == nil && !space.Unsaved() {
		return nil // nothing was changed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), SalvageLimit)
	defer cancel()
	s := o.salvaged(why)
	var err error
	if o.stored != nil && !space.Unsaved() {
		s = o.stored.of(s)
		err = o.cfg.Store.PutSalvage(ctx, s)
	} else {
		s, err = Rescue(ctx, o.cfg.Store, space, s)
	}
	if err != nil {
		return fmt.Errorf("salvage: %w", err)
	}
	if o.saved = &s; s.Patch == nil {
		return nil // there were no changes
	}
	o.cfg.Log.Info("salvaged", "why", why, "bytes", s.Bytes)
	o.cfg.Tell(event.Make(event.SalvageStored(s)))
	return nil
}

// salvaged is a salvage of this attempt without stored files.
func (o *Outcome) salvaged(why jobs.Reason) jobs.Salvage {
	return jobs.Salvage{Job: o.cfg.Record.ID, Epoch: o.cfg.Epoch, Why: why, Worker: o.cfg.Worker}
}

// Rescue stores the changes of a workspace and reads them back. A salvage without a
// patch says that nothing was changed.
func Rescue(ctx context.Context, store *artifact.Store, space *workspace.Workspace, s jobs.Salvage) (jobs.Salvage, error) {
	change, err := space.Collect(ctx)
	if err != nil {
		return s, err
	}
	keep := func() error { return nil }
	if change.Over != nil {
		whole := space.Whole(ctx, change.Over)
		change.Notes = append(change.Notes, tooLarge(s.Worker, whole))
		keep = func() error { return space.KeepWhole(whole) }
	}
	if change.Empty() {
		return s, keep()
	}
	at := destination{store: store, job: s.Job, epoch: s.Epoch}
	k := stored{base: space.Base(), change: change}
	if err := at.keepAll(ctx, &k, salvagePatch, salvageBundle); err != nil {
		return s, err
	}
	s = k.of(s)
	// Before the workspace may go: files that no event names are lost, too.
	if err := store.PutSalvage(ctx, s); err != nil {
		return s, err
	}
	if err := space.Saved(k.receipt()); err != nil {
		return s, err
	}
	return s, keep()
}
