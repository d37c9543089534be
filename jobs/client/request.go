package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
)

// ErrNoDispatcher is a [jobs.ErrUnavailable]: the broker is there, and no dispatcher
// takes requests. penstock serve runs one.
var ErrNoDispatcher = fmt.Errorf("%w: no dispatcher answers", jobs.ErrUnavailable)

const (
	// answerWithin bounds one request: longer than a dispatcher takes for one.
	answerWithin = 16 * time.Second
	// comingUp is how long a request waits for a dispatcher to be there: one may just
	// be starting.
	comingUp = 3 * time.Second
)

// A call is a request to a dispatcher.
type call struct {
	subject   string
	operation string // its name, for errors
	by        string // a word for the program that makes it
	jobID     string // that the new job is to have; empty: any
	request   any
	within    time.Duration // how long a dispatcher may take to answer
	waits     func(error)   // not nil: waits for a dispatcher as long as it may; see Patient
}

// do makes the request and decodes its answer. An error has the code that the
// dispatcher has given it; see [jobs.Code].
func (c call) do(ctx context.Context, conn *wire.Conn, answer any) error {
	body, err := json.Marshal(c.request)
	if err != nil {
		return err
	}
	m := nats.NewMsg(c.subject)
	m.Data = body
	m.Header.Set(operation.CallerHeader, c.by)
	if c.jobID != "" {
		m.Header.Set(operation.JobIDHeader, c.jobID)
	}
	msg, err := c.send(ctx, conn, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w %s", ErrNoDispatcher, c.operation)
	case errors.Is(err, nats.ErrMaxPayload):
		return &jobs.CodedError{Code: jobs.CodeTooLarge, Cause: err, Message: fmt.Sprintf(
			"ask to %s: the request has %d bytes, and a message of this broker at most %d: raise its max_payload, or send less", c.operation, len(body), conn.NC.MaxPayload())}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer to %s: %w", jobs.ErrUnavailable, c.operation, err)
	case err != nil:
		return fmt.Errorf("ask to %s: %w", c.operation, err)
	case msg.Header.Get(micro.ErrorHeader) == "":
		return json.Unmarshal(msg.Data, answer)
	}
	var refused operation.Refusal
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return fmt.Errorf("%s: %s", c.operation, msg.Header.Get(micro.ErrorHeader))
	}
	return refused.Err()
}

// send sends a request, again while no dispatcher is there to have taken it.
func (c call) send(ctx context.Context, conn *wire.Conn, m *nats.Msg) (*nats.Msg, error) {
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		limited, done := context.WithTimeout(ctx, c.within)
		msg, err := conn.Request(limited, m)
		done()
		if !errors.Is(err, nats.ErrNoResponders) {
			return msg, err
		}
		if time.Since(began) > comingUp {
			if c.waits == nil {
				return msg, err
			}
			c.waits(fmt.Errorf("%w %s", ErrNoDispatcher, c.operation))
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}
