package worker

import (
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// permitted asks the worker's policy before anything of the job is made, and
// reports all that it does not permit together.
func (a *attempt) permitted() error {
	if a.strategy() == string(workspace.Hook) && a.job.Deliver.Mode == jobs.DeliverBranch {
		return verdict.Ended(jobs.InvalidJob, "this worker's workspaces are not of git, so there is no branch to deliver; use deliver mode patch")
	}
	return a.refused.Deny(a.cfg.confinement().Permits(a.job, a.strategy(), a.leaving()))
}

// leaving is how the job's result leaves the store; "" if it does not.
func (a *attempt) leaving() string {
	if mode := a.job.Deliver.Mode; mode == jobs.DeliverBranch || mode == jobs.DeliverPR {
		return mode
	}
	return ""
}

// strategy is how the job gets its files, where that does not depend on what
// the host can do.
func (a *attempt) strategy() string {
	if a.job.Isolation == jobs.IsolationNone || a.cfg.Workspace == string(workspace.Auto) {
		return ""
	}
	return a.cfg.Workspace
}
