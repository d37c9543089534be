package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
)

// verbLimit bounds one request of the bus.
const verbLimit = 15 * time.Second

// A Refusal is the answer to a request that was not fulfilled. Fields is
// there when the request itself was at fault.
type Refusal struct {
	Error struct {
		Code    string            `json:"code"` // invalid, not_found, finished, not_finished, full, too_large, internal, or a control.Refusal
		Message string            `json:"message"`
		Fields  []jobs.FieldError `json:"fields,omitempty"`
	} `json:"error"`
}

func refuse(err error) Refusal {
	var r Refusal
	r.Error.Code, r.Error.Message = "internal", err.Error()
	if invalid, ok := errors.AsType[*jobs.InvalidError](err); ok {
		r.Error.Code, r.Error.Fields = "invalid", invalid.Fields
	}
	if refused, ok := errors.AsType[*control.RefusedError](err); ok {
		r.Error.Code = string(refused.Code)
	}
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		r.Error.Code = "not_found"
	case errors.Is(err, jobs.ErrFinished):
		r.Error.Code = "finished"
	case errors.Is(err, jobs.ErrNotFinished):
		r.Error.Code = "not_finished"
	case errors.Is(err, jobs.ErrFull):
		r.Error.Code = "full"
	}
	return r
}

// Request asks a dispatcher, through the bus, and decodes its answer. It is for
// roles that may not look and write for themselves.
func (q *Queue) Request(ctx context.Context, verb string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, verbLimit)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	msg, err := q.conn.Request(ctx, message(q.names.API(verb), body))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no dispatcher answers %s", jobs.ErrUnavailable, verb)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer to %s: %w", jobs.ErrUnavailable, verb, err)
	case err != nil:
		return fmt.Errorf("ask to %s: %w", verb, err)
	case msg.Header.Get(micro.ErrorHeader) == "":
		return json.Unmarshal(msg.Data, answer)
	}
	var refused Refusal
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return fmt.Errorf("%s: %s", verb, msg.Header.Get(micro.ErrorHeader))
	}
	return refused.err()
}

// err is what a refusal was made of.
func (r Refusal) err() error {
	switch {
	case len(r.Error.Fields) > 0:
		return &jobs.InvalidError{Fields: r.Error.Fields}
	case r.Error.Code == "not_found":
		return &notFoundError{r.Error.Message}
	case r.Error.Code == "internal":
		return errors.New(r.Error.Message)
	}
	return control.Refuse(control.Refusal(r.Error.Code), "%s", r.Error.Message)
}

// notFoundError is what another process did not find, in its own words.
type notFoundError struct{ message string }

func (e *notFoundError) Error() string { return e.message }
func (e *notFoundError) Unwrap() error { return jobs.ErrNotFound }
