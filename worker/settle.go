package worker

import (
	"context"
	"errors"
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

// collect takes the result out of the workspace and stores it. It happens
// after an agent that was stopped, too: what it had done may be worth much.
func (a *attempt) collect(ctx context.Context, space *workspace.Workspace) (workspace.Change, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), collectLimit)
	defer cancel()
	began := time.Now()
	change, err := space.Collect(ctx)
	if err != nil {
		return change, verdict.Failed(verdict.CollectReason(err), "collect the result", err)
	}
	defer func() { a.result.Durations.Collect = a.stage("collect", began) }()
	a.result.FilesChanged, a.result.PatchSHA256, a.result.Commits = change.Files, change.SHA256, change.Commits
	if len(change.Skipped)+len(change.Notable)+len(change.Notes) > 0 {
		a.events.put(event.Make(event.Notice{
			Text: "look at these before you use the patch", Skipped: change.Skipped, RunsCode: change.Notable, Notes: change.Notes,
		}))
	}
	if err := a.store(ctx, space, change); err != nil {
		return change, err
	}
	if err := a.pick(ctx, space); err != nil || change.Over == nil {
		return change, err
	}
	whole := space.Whole(ctx, change.Over)
	if err := space.KeepWhole(whole); err != nil {
		return change, verdict.Failed(jobs.WorkspaceFailed, "keep the workspace", err)
	}
	// An agent that failed besides has another reason: this is told in any case.
	a.events.put(event.Make(event.Notice{Text: tooLarge(a.cfg.Name, whole)}))
	return change, verdict.Ended(jobs.TooLarge, "%s", tooLarge(a.cfg.Name, whole))
}

// tooLarge says what became of a workspace of which only a part is stored.
func tooLarge(worker string, whole *workspace.LimitError) string {
	return "on worker " + worker + " " + whole.Error()
}

// store keeps the files of a change as the attempt's result. Read back, they
// are its salvage, too: nothing is stored twice.
func (a *attempt) store(ctx context.Context, space *workspace.Workspace, change workspace.Change) error {
	at := place{store: a.cfg.Store, job: a.rec.ID, epoch: a.claim.Epoch()}
	k := stored{base: space.Base(), change: change}
	err := at.keepAll(ctx, &k, PatchName, BundleName)
	for _, file := range k.files() { // also of those before one that failed
		a.result.Artifacts = append(a.result.Artifacts, *file)
	}
	if err != nil || change.Empty() {
		return err
	}
	a.stored = &k
	// Who is killed before the verdict leaves files that no result names.
	if err := a.cfg.Store.PutSalvage(ctx, k.of(a.salvaged(jobs.WorkerLost))); err != nil {
		return verdict.Failed(jobs.StoreFailed, "note what was stored", err)
	}
	return verdict.Failed(jobs.StoreFailed, "compare what was read back", space.Saved(k.receipt()))
}

// settle writes the verdict: events first, then the result, then the record,
// and only then the acknowledgement. A lost lease ends all of it.
func (a *attempt) settle(ctx context.Context, v jobs.Ended) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	err := a.publish(ctx, v)
	switch {
	case errors.Is(err, jobs.ErrFenced):
		a.log.Warn("lease lost; the job goes on elsewhere")
		if a.cfg.Hooks.Fenced != nil {
			a.cfg.Hooks.Fenced(a.rec)
		}
	case err != nil && a.rec.State == jobs.Executing:
		a.log.Error("verdict lost; the job will be attempted again", "outcome", v.Outcome, "reason", v.Reason, "err", err)
	default:
		if err != nil {
			a.log.Warn("settled; what follows is left to whoever is offered the job next", "err", err)
		}
		a.log.Info("settled", "state", a.rec.State, "outcome", a.rec.Outcome, "reason", a.rec.Reason)
		if a.cfg.Hooks.Settled != nil {
			a.cfg.Hooks.Settled(a.rec, a.result)
		}
	}
}

func (a *attempt) publish(ctx context.Context, v jobs.Ended) error {
	if a.events != nil {
		v = verdict.UnlessLost(v, a.events.close(ctx))
	}
	if a.parked != nil && v.Outcome == "" {
		var err error
		if v, err = a.park(ctx); v.Outcome == "" {
			return err
		}
	}
	if v.Reason == jobs.LeaseLost {
		return a.surrender(ctx, v)
	}
	// Both may quote the agent, as events do.
	v.Message, a.result.Model = a.clean(v.Message), a.clean(a.result.Model)
	a.result.Outcome, a.result.Reason, a.result.Message = v.Outcome, v.Reason, v.Message
	a.result.Worker, a.result.Attempts = a.cfg.Name, a.rec.Attempt
	a.result.Durations.Total = time.Since(a.rec.Submitted).Seconds()
	v = verdict.UnlessLost(v, a.cfg.Store.PutResult(ctx, a.claim.Epoch(), a.result))
	if provider := jobs.Reasons[v.Reason].Fault == jobs.FaultProvider; provider && !a.again.IsZero() {
		v.Wait = time.Until(a.again)
	}
	var err error
	a.rec, err = a.claim.Settle(ctx, v, a.announce)
	return err
}

// surrender hands back a job whose lease could not be renewed, where nobody has
// taken it over yet: it was the broker that was away, and the next one to claim
// must not take this worker for dead. It always returns [jobs.ErrFenced].
func (a *attempt) surrender(ctx context.Context, v jobs.Ended) error {
	ctx, cancel := context.WithTimeout(ctx, surrenderLimit)
	defer cancel()
	v.Message = a.clean(v.Message)
	// The write is refused unless the record is as this attempt has left it.
	if rec, err := a.claim.Settle(ctx, v, a.announce); err == nil {
		a.log.Info("handed back", "state", rec.State)
	}
	return jobs.ErrFenced
}

// clean removes the values of secrets from what is not an event.
func (a *attempt) clean(text string) string {
	if a.secrets == nil {
		return text // no secret was given to anything yet
	}
	return string(a.secrets.Text([]byte(text)))
}

// announce tells the session how the attempt ended.
func (a *attempt) announce(ctx context.Context, rec jobs.Record) error {
	if rec.State == jobs.Finished {
		a.result.Outcome, a.result.Reason, a.result.Message = rec.Outcome, rec.Reason, rec.Message
		return a.cfg.Log.Finish(ctx, rec, a.result)
	}
	if a.writer == nil {
		return nil
	}
	return a.writer.Append(ctx, event.New(event.JobRequeued{
		Reason: rec.Reason, Message: rec.Message, State: rec.State, NotBefore: rec.NotBefore,
	}))
}
