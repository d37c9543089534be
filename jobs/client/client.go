// Package client is the way into a pool for every program that is not a worker: it
// submits jobs, follows them, talks to their agents, and asks for whatever else
// [operation.All] lists.
//
//	Client ──request──▶ a dispatcher ──▶ answer                    [Open]: over the bus
//	   └────reads─────▶ sessions and artifacts, where its role may
//
//	Client ──request──▶ penstock serve ──▶ a dispatcher ──▶ answer [OpenHTTP]: over HTTP
//
// A Client asks and never writes to the broker itself. So all that belongs to a
// change is done by the dispatcher, which is there for every client, and a program
// that ends half way leaves nothing half done. Where no dispatcher answers, an error
// is a [jobs.ErrUnavailable]. Every error has a code; see [jobs.Code].
//
// Client itself has what is about one job. Operations on other things are values of
// their own, named after the thing: [Client.Queues], [Client.Batches],
// [Client.DeadLetters], [Client.Schedules], [Client.Tokens],
// [Client.Webhooks]. Lists are iterators, which read page after
// page and end with an error where they could not go on.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/pause"
)

// Config names the pool and the caller. The zero value is for an installation
// with the default names, and a connection that may do everything.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	Tenant string // default "default"
	// Role is the one of the connection's credential. With viewer, and with operator,
	// sessions and artifacts are read from the broker, else by requests.
	Role jobs.Role
	// By is a word for the program, kept with what it changes; default "client".
	By string
}

// A Client asks one pool. Its methods may be called from any goroutine.
type Client struct {
	cfg       Config
	transport transport
	// unanswered is how long a request that makes a job waits before it is sent again.
	unanswered time.Duration
	waits      func(error) // see Patient
	who, via   string      // see OnBehalf
	role       jobs.Role   // see OnBehalf
	jobID      string      // see WithJobID
	trace      jobs.Trace  // see WithTrace
}

// Open returns a client over a connection, which its caller closes.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Client, error) {
	cfg.By = cmp.Or(cfg.By, "client")
	if err := jobs.CheckToken("by", cfg.By); err != nil {
		return nil, err
	}
	b, err := openBus(ctx, nc, cfg)
	if err != nil {
		return nil, err
	}
	return newClient(cfg, b), nil
}

func newClient(cfg Config, by transport) *Client {
	return &Client{cfg: cfg, transport: by, unanswered: 2 * time.Second}
}

// As returns a client that gives another word for the program.
func (c *Client) As(by string) *Client {
	other := *c
	other.cfg.By = by
	return &other
}

// Patient returns a client whose requests wait while no dispatcher is there, until
// their contexts end, and which asks again where no answer comes to a request that
// changes nothing. It is for programs that wait for jobs and should outlive a restart
// of the pool. Every so often while it waits it tells why.
func (c *Client) Patient(tell func(why error)) *Client {
	other := *c
	other.waits = tell
	return &other
}

// Close closes the connections that the client has opened itself: those of [OpenHTTP],
// and not the one that [Open] was given.
func (c *Client) Close() { c.transport.close() }

// Role is the one that the client has: over HTTP that of its token.
func (c *Client) Role() jobs.Role { return c.cfg.Role }

// May reports whether the client's role may ask for an operation: on behalf of a caller,
// whether the caller's may.
func (c *Client) May(row operation.Row) bool {
	if c.via != "" {
		return row.Allows(c.role)
	}
	return row.Allows(c.cfg.Role)
}

// Ask asks for an operation. The methods of Client are a shorter way to write it.
func Ask[Q, A any](ctx context.Context, c *Client, op operation.Operation[Q, A], question Q) (A, error) {
	for {
		var answer A
		err := newCall(c, op.Row, question).do(ctx, c.transport, &answer)
		// What no dispatcher was there to take has changed nothing.
		again := away(err) && !op.Changes || errors.Is(err, ErrNoDispatcher)
		if !again || c.waits == nil || ctx.Err() != nil {
			return answer, err
		}
		c.waits(err)
		pause.For(ctx, askAgainAfter)
	}
}

// Call is [Ask] for a caller that has requests and answers as JSON, of whatever operation
// the row is of. A dispatcher decides whether the request is valid.
func Call(ctx context.Context, c *Client, row operation.Row, request json.RawMessage) (json.RawMessage, error) {
	return Ask(ctx, c, operation.Operation[json.RawMessage, json.RawMessage]{Row: row}, request)
}
