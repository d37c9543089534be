package jobs

import (
	"context"
	"errors"
)

// An ErrorCode names what went wrong, for programs: in the answers of the bus, and
// in whatever else answers requests. A command makes its exit code of it.
type ErrorCode string

// The error codes. Those from not_ready on refuse a message to an agent.
const (
	CodeInvalid      ErrorCode = "invalid"
	CodeAmbiguous    ErrorCode = "ambiguous"
	CodeNotFound     ErrorCode = "not_found"
	CodeExists       ErrorCode = "exists"
	CodeFinished     ErrorCode = "finished"
	CodeNotFinished  ErrorCode = "not_finished"
	CodeNotRetryable ErrorCode = "not_retryable"
	CodeForbidden    ErrorCode = "forbidden"
	CodeFull         ErrorCode = "full"
	CodeQuota        ErrorCode = "quota_exceeded"
	CodeTooLarge     ErrorCode = "too_large"
	CodeUnavailable  ErrorCode = "unavailable"
	CodeInternal     ErrorCode = "internal"
	CodeNotReady     ErrorCode = "not_ready"
	CodeOver         ErrorCode = "over"
	CodeCannot       ErrorCode = "cannot"
	CodeNothing      ErrorCode = "nothing"
	CodeUnfit        ErrorCode = "answer"
	CodeBusy         ErrorCode = "busy"
	CodeLost         ErrorCode = "lost"
)

// A CodeMeaning is one row of [ErrorCodes].
type CodeMeaning struct {
	Code    ErrorCode
	Meaning string
	// Err is what errors.Is finds in an error with the code; nil where the package
	// has no such value.
	Err error
}

// ErrorCodes is the table of all codes, in the order in which the reference lists
// them.
var ErrorCodes = []CodeMeaning{
	{CodeInvalid, "The request or the job is not valid; fields says where.", nil},
	{CodeAmbiguous, "Several jobs have the abbreviated id.", nil},
	{CodeNotFound, "Nothing has that id or name, or it is not kept any more.", ErrNotFound},
	{CodeExists, "There is something of that name already: take another name, or remove it first.", ErrExists},
	{CodeFinished, "The job has ended, or the worker shuts down, so the request cannot be carried out.", ErrFinished},
	{CodeNotFinished, "The job has not ended, so it has no result yet.", ErrNotFinished},
	{CodeNotRetryable, "Only a job that has finished without success can be retried.", nil},
	{CodeForbidden, "The role of this credential may not do that.", ErrForbidden},
	{CodeFull, "The broker's store has no room; nothing was kept. Repeat the request when there is room.", ErrFull},
	{CodeQuota, "As many jobs of that queue, batch, agent, repository or label are open, or as much is stored of them, as a quota allows; nothing was kept. Repeat the request when some have ended, or were purged.", nil},
	{CodeTooLarge, "The request or its answer does not fit a message of the broker: send or ask for less.", nil},
	{CodeUnavailable, "The broker, a dispatcher or a worker does not answer.", ErrUnavailable},
	{CodeInternal, "The pool met an error that this list does not name.", nil},
	{CodeNotReady, "No agent of the job takes messages now; a later one may.", nil},
	{CodeOver, "The agent takes no more messages.", nil},
	{CodeCannot, "This agent cannot do what the message asks for.", nil},
	{CodeNothing, "There is nothing to answer or to interrupt.", nil},
	{CodeUnfit, "The answer does not fit the question.", nil},
	{CodeBusy, "The agent does not read, or too many requests about the same thing wait.", nil},
	{CodeLost, "The worker cannot tell whether it still holds the job.", nil},
}

// coded is an error that knows its code.
type coded interface {
	error
	ErrorCode() ErrorCode
}

// Code returns the code of an error: "" of nil, and [CodeInternal] of one that the
// table does not name.
func Code(err error) ErrorCode {
	if err == nil {
		return ""
	}
	if known, ok := errors.AsType[coded](err); ok {
		return known.ErrorCode()
	}
	for _, row := range ErrorCodes {
		if row.Err != nil && errors.Is(err, row.Err) {
			return row.Code
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return CodeUnavailable
	}
	return CodeInternal
}

// A CodedError is an error that another process has reported. It has the text of
// the original, and errors.Is and errors.As find in it what its code stands for.
type CodedError struct {
	Code    ErrorCode
	Message string
	Cause   error // may be nil
}

func (e *CodedError) Error() string        { return e.Message }
func (e *CodedError) ErrorCode() ErrorCode { return e.Code }
func (e *CodedError) Unwrap() error        { return e.Cause }

// Is finds the error of the table that has the same code.
func (e *CodedError) Is(target error) bool {
	for _, row := range ErrorCodes {
		if row.Code == e.Code && row.Err != nil {
			return row.Err == target
		}
	}
	return false
}
