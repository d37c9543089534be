package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
)

// The exit codes of penstock, which "penstock help exit-codes" explains. They are a contract:
// scripts depend on them.
const (
	ExitOK          = 0
	ExitUnexpected  = 1
	ExitUsage       = 2
	ExitFailure     = 3
	ExitError       = 4
	ExitNotFound    = 5
	ExitDenied      = 6
	ExitUnreachable = 7
	ExitTimeout     = 8
	ExitStopped     = 9
	ExitInterrupted = 130
)

// An Error is an error for a person: what went wrong, the way out, and the exit code
// for scripts.
type Error struct {
	Code int
	Hint string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Fail returns an error with its exit code and, where there is one, a hint.
func Fail(code int, hint, format string, args ...any) error {
	return &Error{Code: code, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// Usage returns an error about the user's input.
func Usage(hint, format string, args ...any) error { return Fail(ExitUsage, hint, format, args...) }

// NotFound gives an error that says that what was named does not exist a hint at what lists
// the names. It leaves any other error as it is.
func NotFound(err error, hint string) error {
	if errors.Is(err, jobs.ErrNotFound) {
		return Fail(ExitNotFound, hint, "%w", err)
	}
	return err
}

// Code returns the exit code of an error; nil is 0.
func Code(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch jobs.Code(err) {
	case "":
		return ExitOK
	case jobs.CodeInvalid, jobs.CodeAmbiguous, jobs.CodeExists:
		return ExitUsage
	case jobs.CodeNotFound:
		return ExitNotFound
	case jobs.CodeForbidden, jobs.CodeQuota:
		return ExitDenied
	case jobs.CodeUnavailable:
		return ExitUnreachable
	}
	if errors.Is(err, context.Canceled) {
		return ExitInterrupted
	}
	return ExitUnexpected
}

// Report writes err for a person to w, with its hint, and returns its code.
func Report(w *console.Writer, err error) int {
	code := Code(err)
	if err == nil {
		return code
	}
	if text := err.Error(); text != "" {
		w.Report("penstock: ", input.Words(text))
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Hint != "" {
		w.Printf("hint: %s\n", e.Hint)
	}
	return code
}

// OutcomeCode is the exit code for a number of finished jobs: the worst one
// decides.
func OutcomeCode(outcomes map[jobs.Outcome]int) int {
	switch {
	case outcomes[jobs.Error] > 0 || outcomes[jobs.TimedOut] > 0:
		return ExitError
	case outcomes[jobs.Failure] > 0 || outcomes[jobs.Cancellation] > 0:
		return ExitFailure
	}
	return ExitOK
}
