package worker

import (
	"errors"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// permitted asks the worker's policy before anything of the job is made, and
// reports all that it does not permit together.
func (a *attempt) permitted() error {
	if a.strategy() == string(workspace.Hook) && a.job.Deliver.Mode == jobs.DeliverBranch {
		return verdict.Ended(jobs.InvalidJob, "this worker's workspaces are not of git, so there is no branch to deliver; use deliver mode patch")
	}
	return a.deny(a.cfg.confinement().Permits(a.job, a.strategy(), a.leaving()))
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

// deny keeps what a policy does not permit, and ends the attempt with it.
func (a *attempt) deny(err error) error {
	denied, ok := errors.AsType[*policy.DeniedError](err)
	if !ok {
		return err
	}
	for _, d := range denied.Denials {
		a.refused.Note(policy.KindPolicy, d.Field+": "+d.Value, "permitted is "+d.Most)
	}
	return verdict.Ended(jobs.PolicyDenied, "the worker does not permit what the job asks for: %v", denied)
}

// refuse hands on what the attempt did not get, and tells it to those who
// watch the session.
func (a *attempt) refuse(v policy.Violation) {
	if a.cfg.Refused != nil {
		a.cfg.Refused(v)
	}
	if v.Kind == policy.KindHost {
		return // the network has told more of it
	}
	data := event.JailViolation{Kind: v.Kind, Setting: v.What, Reason: v.Reason}
	if a.cfg.Hooks.Violation != nil {
		a.cfg.Hooks.Violation(a.rec, data)
	}
	a.events.Put(event.Make(event.JailViolation(data)))
}
