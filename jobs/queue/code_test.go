package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/record"
)

// The code of an error survives its way through other packages, and errors.Is finds
// on the other side what it found on this one.
func TestErrorCodes(t *testing.T) {
	for want, err := range map[jobs.ErrorCode]error{
		jobs.CodeInvalid:      &jobs.InvalidError{Fields: []jobs.FieldError{{Field: "a", Reason: "b"}}},
		jobs.CodeAmbiguous:    &record.AmbiguousError{Prefix: "01"},
		jobs.CodeNotRetryable: &queue.NotRetryableError{ID: "x"},
		jobs.CodeNotFound:     jobs.ErrNotFound,
		jobs.CodeForbidden:    &jobs.ForbiddenError{Role: jobs.RoleViewer},
		jobs.CodeUnavailable:  context.DeadlineExceeded,
		jobs.CodeNotReady:     control.Refuse(control.NotReady, "not yet"),
		jobs.CodeFinished:     control.Refuse(control.Finished, "too late"),
		jobs.CodeInternal:     errors.New("something"),
		"":                    nil,
	} {
		if err != nil {
			err = fmt.Errorf("job x: %w", err)
		}
		if got := jobs.Code(err); got != want {
			t.Errorf("%v has code %q, want %q", err, got, want)
		}
	}
	seen := map[jobs.ErrorCode]bool{}
	for _, row := range jobs.ErrorCodes {
		if seen[row.Code] || row.Meaning == "" {
			t.Errorf("%s stands twice in the table, or says nothing", row.Code)
		}
		seen[row.Code] = true
		restored := fmt.Errorf("ask: %w", &jobs.CodedError{Code: row.Code, Message: "in other words"})
		if got := jobs.Code(restored); got != row.Code {
			t.Errorf("%s comes back as %s", row.Code, got)
		}
		for _, other := range jobs.ErrorCodes {
			if other.Err != nil && errors.Is(restored, other.Err) != (other.Code == row.Code) {
				t.Errorf("an error with code %s: errors.Is finds %v: %v", row.Code, other.Err, errors.Is(restored, other.Err))
			}
		}
	}
	for _, code := range control.Refusals {
		if !seen[jobs.ErrorCode(code)] {
			t.Errorf("refusal %s is not in the table", code)
		}
	}
}
