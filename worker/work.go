package worker

import (
	"context"
	"time"

	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// work runs the job's setup, its agent and its checks, all in the same workspace, until
// the job's time limit.
func (a *attempt) work(ctx context.Context, space *workspace.Workspace) error {
	limited, cancel := context.WithTimeoutCause(ctx, time.Duration(a.of.job.Timeout), verdict.ErrTimeLimit)
	defer cancel()
	defer a.watchSize(limited, space)()
	var err error
	if a.runs.depends, err = dependencies(limited, a.of.cfg, a.of.job.DependsOn); err != nil {
		return err
	}
	if err := a.setup(limited, space); err != nil {
		return err
	}
	if err := a.runs.untilChecked(limited); err != nil {
		return err
	}
	return context.Cause(limited)
}
