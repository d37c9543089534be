package worker

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/workspace"
)

// errTimeLimit is why an attempt's context ends, besides the causes in jobs.
var errTimeLimit = errors.New("time limit reached")

// An endedError says that the attempt came to an end that already has a
// reason: the agent's own verdict, a command of the job that failed, a limit.
type endedError struct{ jobs.Ended }

func (e *endedError) Error() string { return e.Message }

func ended(reason jobs.Reason, format string, args ...any) error {
	return &endedError{reason.Ended(fmt.Sprintf(format, args...))}
}

// verdict is the only place where an error becomes a decision. What ended the
// context comes first: a killed agent reports all kinds of errors.
func verdict(ctx context.Context, err error) jobs.Ended {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err == nil {
		return jobs.Ended{Outcome: jobs.Success}
	}
	if errors.Is(err, errParked) {
		return jobs.Ended{} // it goes on
	}
	if already, ok := errors.AsType[*endedError](err); ok {
		return already.Ended
	}
	return reason(err).Ended(err.Error())
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
	case errors.Is(err, errTimeLimit):
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
	if step, ok := errors.AsType[*stepError](err); ok {
		return step.reason
	}
	return jobs.Internal
}

// cannotCollect is the reason of a result that could not be taken from the
// workspace. What the agent wrote stands in the way, unless the error is one
// that no content of a workspace can cause: then the host failed, and the job is
// not charged for it.
func cannotCollect(err error) jobs.Reason {
	for _, host := range []error{syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ESTALE} {
		if errors.Is(err, host) {
			return jobs.WorkspaceFailed
		}
	}
	return jobs.CollectFailed
}

// A stepError carries the reason that a step's failure has where the error
// itself does not say more.
type stepError struct {
	reason jobs.Reason
	step   string
	err    error
}

func (e *stepError) Error() string { return e.step + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

func failed(reason jobs.Reason, step string, err error) error {
	if err == nil {
		return nil
	}
	return &stepError{reason, step, err}
}
