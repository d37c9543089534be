// Package request asks dispatchers over the bus: for clients, and for commands
// whose role may not look and write for itself.
package request

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
// takes requests.
var ErrNoDispatcher = fmt.Errorf("%w: no dispatcher answers", jobs.ErrUnavailable)

const (
	// answerWithin bounds one request: longer than a dispatcher takes for one.
	answerWithin = 16 * time.Second
	// comingUp is how long a request waits for a dispatcher to be there: one may just
	// be starting.
	comingUp = 3 * time.Second
)

// A Call is a request to a dispatcher.
type Call struct {
	Subject   string
	Operation string // its name, for errors
	By        string // a word for the program that makes it
	JobID     string // that a submitted job is to have; empty: any
	Request   any
}

// Do makes the request and decodes its answer. An error has the code that the
// dispatcher has given it; see [jobs.Code].
func (c Call) Do(ctx context.Context, conn *wire.Conn, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	body, err := json.Marshal(c.Request)
	if err != nil {
		return err
	}
	m := nats.NewMsg(c.Subject)
	m.Data = body
	m.Header.Set(operation.CallerHeader, c.By)
	if c.JobID != "" {
		m.Header.Set(operation.JobIDHeader, c.JobID)
	}
	msg, err := requestWhenServed(ctx, conn, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w %s", ErrNoDispatcher, c.Operation)
	case errors.Is(err, nats.ErrMaxPayload):
		return &jobs.CodedError{Code: jobs.CodeTooLarge, Cause: err, Message: fmt.Sprintf(
			"ask to %s: the request has %d bytes, and a message of this broker at most %d: raise its max_payload, or send less", c.Operation, len(body), conn.NC.MaxPayload())}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer to %s: %w", jobs.ErrUnavailable, c.Operation, err)
	case err != nil:
		return fmt.Errorf("ask to %s: %w", c.Operation, err)
	case msg.Header.Get(micro.ErrorHeader) == "":
		return json.Unmarshal(msg.Data, answer)
	}
	var refused operation.Refusal
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return fmt.Errorf("%s: %s", c.Operation, msg.Header.Get(micro.ErrorHeader))
	}
	return refused.Err()
}

// requestWhenServed sends a request, again while no dispatcher is there to have
// heard it.
func requestWhenServed(ctx context.Context, conn *wire.Conn, m *nats.Msg) (*nats.Msg, error) {
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		msg, err := conn.Request(ctx, m)
		if !errors.Is(err, nats.ErrNoResponders) || time.Since(began) > comingUp {
			return msg, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}
