// Package verdict turns the error that an attempt ends with into its verdict. The steps
// of an attempt return errors of this package if they know the reason, and one function
// decides:
//
//	what ended the attempt's context ─▶ an end with a reason ─▶ the error's type
//	─▶ the reason that its step gave
//
// No error is ever classified by its text.
package verdict

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/workspace"
)

// Reasons for the end of an attempt, besides the causes in package jobs.
var (
	ErrTimeLimit = errors.New("time limit reached")
	// ErrParked: the questions of the attempt's agent are open, and the job continues
	// when they are answered.
	ErrParked = errors.New("parked until its questions are answered")
)

// An EndedError says that the attempt came to an end that already has a
// reason: the agent's own verdict, a command of the job that failed, a limit.
type EndedError struct{ jobs.Ended }

func (e *EndedError) Error() string { return e.Message }

// Ended returns an end with its reason.
func Ended(reason jobs.Reason, format string, args ...any) error {
	return &EndedError{Ended: reason.Ended(fmt.Sprintf(format, args...))}
}

// A StepError is the failure of a step with its reason, for errors that do not have one
// themselves.
type StepError struct {
	reason jobs.Reason
	step   string
	err    error
}

func (e *StepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *StepError) Unwrap() error { return e.err }

// Failed returns the failure of a step, or nil if there was none.
func Failed(reason jobs.Reason, step string, err error) error {
	if err == nil {
		return nil
	}
	return &StepError{reason: reason, step: step, err: err}
}

// Of is the only place where an error becomes a decision. What ended the
// context comes first: a killed agent reports all kinds of errors.
func Of(ctx context.Context, err error) jobs.Ended {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		return jobs.Ended{Outcome: jobs.Success}
	}
	if errors.Is(err, ErrParked) {
		return jobs.Ended{} // the job continues
	}
	if already, ok := errors.AsType[*EndedError](err); ok {
		return already.Ended
	}
	return reason(err).Ended(err.Error())
}

// UnlessLost returns the verdict, or another one if the attempt's events or its result
// could not be stored: without them the verdict would not be explained anywhere, and
// without a verdict the job would wait for the end of its lease.
func UnlessLost(v jobs.Ended, err error) jobs.Ended {
	if err == nil || v.Reason == jobs.LeaseLost {
		return v
	}
	return Of(context.Background(), Failed(jobs.StoreFailed, "store what the attempt left", err))
}

// reason classifies an error of a step by its type, never by its text.
func reason(err error) jobs.Reason {
	switch {
	case errors.Is(err, jobs.ErrFenced):
		return jobs.LeaseLost
	case errors.Is(err, jobs.ErrCancelled):
		return jobs.Cancelled
	case errors.Is(err, jobs.ErrDraining):
		return jobs.WorkerDrained
	case errors.Is(err, ErrTimeLimit):
		return jobs.TimeLimit
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return jobs.DiskFull
	}
	if _, ok := errors.AsType[*agent.UnknownAgentError](err); ok {
		return jobs.UnknownAgent
	}
	if _, ok := errors.AsType[*jobs.InvalidError](err); ok {
		return jobs.InvalidJob
	}
	if _, ok := errors.AsType[*agentstore.UseError](err); ok {
		return jobs.AgentVersion
	}
	if _, ok := errors.AsType[*agent.MissingError](err); ok {
		return jobs.AgentMissing
	}
	if _, ok := errors.AsType[*workspace.RefError](err); ok {
		return jobs.RefNotFound
	}
	if _, ok := errors.AsType[*workspace.UnreachableError](err); ok {
		return jobs.RepoUnreachable
	}
	if refused, ok := errors.AsType[*workspace.RefusedError](err); ok {
		return refused.Reason
	}
	if step, ok := errors.AsType[*StepError](err); ok {
		return step.reason
	}
	return jobs.Internal
}

// CollectReason is the reason of a result that could not be collected from the
// workspace. The agent's files are the cause, unless the error is one that no content
// of a workspace can cause: then the host failed, and the job is not charged for it.
func CollectReason(err error) jobs.Reason {
	for _, host := range []error{syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ESTALE} {
		if errors.Is(err, host) {
			return jobs.WorkspaceFailed
		}
	}
	return jobs.CollectFailed
}

// StartReason distinguishes a jail that cannot be made here from a program that is not
// in it.
func StartReason(err error) jobs.Reason {
	if image, ok := errors.AsType[imageError](err); ok && image.ImageMissing() {
		return jobs.ImageMissing
	}
	if _, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return jobs.SandboxMissing
	}
	if _, ok := errors.AsType[*sandbox.FieldError](err); ok {
		return jobs.SandboxMissing // job and policy together describe an invalid jail
	}
	if start, ok := errors.AsType[*sandbox.StartError](err); ok && start.Step == "execute" {
		return jobs.AgentMissing
	}
	return jobs.SandboxFailed
}

// An imageError is the error of a container backend that refuses a jail.
type imageError interface {
	error
	ImageMissing() bool
}
