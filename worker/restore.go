package worker

import (
	"context"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/workspace"
)

// salvages are those of earlier attempts.
func (a *attempt) salvages() outcome.Salvages {
	return outcome.Salvages{Store: a.cfg.Store, Record: a.cfg.Queue.Get}
}

// restore puts a salvage into the workspace, and tells the session so.
func (a *attempt) restore(ctx context.Context, space *workspace.Workspace, s *jobs.Salvage) error {
	if s == nil {
		return nil
	}
	if space.Reused() {
		a.inherits(space, "is the one of an earlier attempt of this job, as that attempt, or a person since, has left it", s)
		return nil
	}
	if s.Patch == nil && s.Bundle == nil {
		return nil // a capsule of an attempt that had changed nothing
	}
	if err := a.salvages().Restore(ctx, space, s); err != nil {
		return err
	}
	whose := "attempt of this job"
	switch {
	case s.Job != a.rec.ID:
		whose = "job, " + s.Job + ","
	case s.Epoch == 0:
		whose = "job, " + a.job.Fork + ","
	}
	a.inherits(space, "begins from a salvage: the changes of an earlier "+whose+" were restored to a fresh checkout", s)
	return nil
}
