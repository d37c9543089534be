package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// ErrNoDispatcher is a [jobs.ErrUnavailable]: no dispatcher takes requests. The broker may
// be there all the same. penstock serve runs a dispatcher.
var ErrNoDispatcher = fmt.Errorf("%w: no dispatcher answers", jobs.ErrUnavailable)

const (
	// answerWithin bounds one request: longer than a dispatcher takes for one.
	answerWithin = 16 * time.Second
	// comingUp is how long a request waits for a dispatcher to be there: one may just
	// be starting.
	comingUp = 3 * time.Second
	// firstPause and lastPause are how long it waits before it looks again.
	firstPause, lastPause = 10 * time.Millisecond, 250 * time.Millisecond
)

// A call is a request to a dispatcher.
type call struct {
	row      operation.Row
	by       string // a word for the program that makes it
	who, via string // see OnBehalf
	role     jobs.Role
	jobID    string // that the new job is to have; empty: any
	trace    jobs.Trace
	request  any
	within   time.Duration // how long a dispatcher may take to answer
}

func newCall(c *Client, row operation.Row, question any) call {
	return call{row: row, by: c.cfg.By, who: c.who, role: c.role, via: c.via, trace: c.trace, request: question, within: answerWithin}
}

// do makes the request and decodes its answer. An error has the code that the
// dispatcher has given it; see [jobs.Code].
func (c call) do(ctx context.Context, by transport, answer any) error {
	body, asIs := c.request.(json.RawMessage) // also what is no JSON: the dispatcher says so
	if !asIs {
		var err error
		if body, err = json.Marshal(c.request); err != nil {
			return err
		}
	}
	answered, err := by.request(ctx, c, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answered, answer)
}

// noAnswer is the error of a request that a dispatcher may have taken, or not.
func noAnswer(c call, err error) error {
	return fmt.Errorf("%w: no answer to %s: %w", jobs.ErrUnavailable, c.row.Name, err)
}
