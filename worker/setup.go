package worker

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// setup brings into the workspace what the job's setup commands write. Where
// another job of this host had the same done, it takes that over.
func (a *attempt) setup(ctx context.Context, space *workspace.Workspace) error {
	if len(a.of.job.Setup) == 0 {
		return nil
	}
	began := time.Now()
	key, why, err := a.setupKey(space)
	if err != nil {
		return err
	}
	var ran error
	took, reused, err := space.Setup(ctx, key, func(ctx context.Context, layer *workspace.Workspace) error {
		ran = a.of.jails.Run(ctx, a.runs.in.Around(layer), jobs.SetupFailed, a.of.job.Setup, nil)
		return ran
	})
	switch {
	case ran != nil:
		return err
	case err != nil:
		return verdict.Failed(jobs.WorkspaceFailed, "share what setup wrote", err)
	}
	spent := time.Since(began)
	data := event.SetupEnded{Cached: reused, Seconds: spent.Seconds(), Reason: why}
	if reused {
		data.Saved = max(0, took-spent).Seconds()
		a.of.out.Result.Took("check", data.Seconds)
		for _, command := range a.of.job.Setup {
			a.of.out.Result.Ran(jobs.Check{Command: command, Cached: true})
		}
	}
	a.of.events.Put(event.Make(data))
	return nil
}

// setupKey names all that setup depends on besides the commit. It is "" where what
// it writes is for this job alone, and then says why.
func (a *attempt) setupKey(space *workspace.Workspace) (key, why string, err error) {
	switch {
	case a.of.cfg.SetupCache == 0:
		why = "the worker's setting setup_cache is 0"
	case a.of.job.FreshSetup:
		why = "the job has fresh_setup"
	case space.Strategy() != workspace.Overlay:
		why = "the workspace is no overlay"
	case space.Unsaved():
		why = "the workspace begins from a salvage"
	default:
		return a.runs.in.SetupKey(time.Now().UnixNano() / int64(a.of.cfg.SetupCache))
	}
	return "", why, nil
}
