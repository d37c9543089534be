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
	"github.com/penstock-run/penstock/jobs/operation"
)

// verbLimit bounds one request of the bus.
const verbLimit = 15 * time.Second

// callerHeader is the header of a request that says, in a word, who makes it:
// cli, batch. It is kept with what the request changes, for people who ask who did
// that; nothing is allowed or refused by it.
const callerHeader = "Penstock-By"

// noDispatcher is how long a request waits for a dispatcher to be there: one may
// just be starting.
const noDispatcher = 3 * time.Second

// Ask asks a dispatcher, through the bus, and decodes its answer. An error has the
// code that the dispatcher has given it; see [jobs.Code].
func (q *Queue) Ask(ctx context.Context, row operation.Row, by string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, verbLimit)
	defer cancel()
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	m := message(q.names.API(row.Name), body)
	m.Header.Set(callerHeader, by)
	msg, err := q.ask(ctx, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: no dispatcher answers %s", jobs.ErrUnavailable, row.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer to %s: %w", jobs.ErrUnavailable, row.Name, err)
	case err != nil:
		return fmt.Errorf("ask to %s: %w", row.Name, err)
	case msg.Header.Get(micro.ErrorHeader) == "":
		return json.Unmarshal(msg.Data, answer)
	}
	var refused operation.Refusal
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return fmt.Errorf("%s: %s", row.Name, msg.Header.Get(micro.ErrorHeader))
	}
	return refused.Err()
}

// ask sends a request, again while no dispatcher is there to have heard it.
func (q *Queue) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	wait := 10 * time.Millisecond
	for began := time.Now(); ; wait = min(2*wait, 250*time.Millisecond) {
		msg, err := q.conn.Request(ctx, m)
		if !errors.Is(err, nats.ErrNoResponders) || time.Since(began) > noDispatcher {
			return msg, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}
