package outcome

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// The names of an attempt's artifacts: its patch, and its commits as a bundle
// of git.
const (
	PatchName  = jobs.PatchName
	BundleName = "commits.bundle"
)

// CollectLimit bounds the step that takes the result out of a workspace.
const CollectLimit = 5 * time.Minute

// Collect collects the result from the workspace and stores it. It also runs after an
// agent that was stopped: its work may be worth much.
func (o *Outcome) Collect(ctx context.Context, space *workspace.Workspace) (workspace.Change, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CollectLimit)
	defer cancel()
	change, err := space.Collect(ctx)
	if err != nil {
		return change, verdict.Failed(verdict.CollectReason(err), "collect the result", err)
	}
	o.Result.change(func(r *jobs.Result) {
		r.FilesChanged, r.PatchSHA256, r.Commits = change.Files, change.SHA256, change.Commits
	})
	if len(change.Skipped)+len(change.Notable)+len(change.Notes) > 0 {
		o.cfg.Tell(event.Make(event.Notice{
			Text: "look at these before you use the patch", Skipped: change.Skipped, RunsCode: change.Notable, Notes: change.Notes,
		}))
	}
	if err := o.store(ctx, space, change); err != nil {
		return change, err
	}
	if err := o.pick(ctx, space); err != nil || change.Over == nil {
		return change, err
	}
	whole := space.Whole(ctx, change.Over)
	if err := space.KeepWhole(whole); err != nil {
		return change, verdict.Failed(jobs.WorkspaceFailed, "keep the workspace", err)
	}
	// An agent that failed as well has another reason, so this is always reported.
	o.cfg.Tell(event.Make(event.Notice{Text: tooLarge(o.cfg.Worker, whole)}))
	return change, verdict.Ended(jobs.TooLarge, "%s", tooLarge(o.cfg.Worker, whole))
}

// tooLarge describes a workspace of which only a part is stored.
func tooLarge(worker string, whole *workspace.LimitError) string {
	return "on worker " + worker + " " + whole.Error()
}

// store stores the files of a change as the attempt's result. Once read back they are
// its salvage, too: nothing is stored twice.
func (o *Outcome) store(ctx context.Context, space *workspace.Workspace, change workspace.Change) error {
	k := stored{base: space.Base(), change: change}
	err := o.destination().keepAll(ctx, &k, PatchName, BundleName)
	for _, file := range k.files() { // includes files from before a failure
		o.Result.list(*file)
	}
	if err != nil || change.Empty() {
		return err
	}
	o.stored = &k
	// A worker that is killed before the verdict leaves files that no result names.
	if err := o.cfg.Store.PutSalvage(ctx, k.of(o.salvaged(jobs.WorkerLost))); err != nil {
		return verdict.Failed(jobs.StoreFailed, "note what was stored", err)
	}
	return verdict.Failed(jobs.StoreFailed, "compare what was read back", space.Saved(k.receipt()))
}
