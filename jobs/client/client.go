// Package client is the way into a pool for every program that is not a worker: it
// submits jobs, follows them, talks to their agents, and asks for whatever else
// [operation.All] lists.
//
//	Client ──request──▶ a dispatcher ──▶ answer
//	   └────reads─────▶ sessions and artifacts, where its role may
//
// A Client asks and never writes to the broker itself. So all that belongs to a
// change is done by the dispatcher, which is there for every client, and a program
// that ends half way leaves nothing half done. Where no dispatcher answers, an error
// is a [jobs.ErrUnavailable]. Every error has a code; see [jobs.Code].
//
// Client itself has what is about one job. Operations on other things are values of
// their own, named after the thing: [Client.Queues], [Client.Batches],
// [Client.DeadLetters], [Client.Schedules]. Lists are iterators, which read page after
// page and end with an error where they could not go on.
package client

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/session"
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
	cfg   Config
	names subject.Names
	conn  *wire.Conn
	log   *session.Log
	store *artifact.Store
	// unanswered is how long a request that makes a job waits before it is sent again.
	unanswered time.Duration
	waits      func(error) // see Patient
}

// Open returns a client over a connection, which its caller closes.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Client, error) {
	cfg.By = cmp.Or(cfg.By, "client")
	if err := jobs.CheckToken("by", cfg.By); err != nil {
		return nil, err
	}
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, names: names, unanswered: 2 * time.Second}
	if c.conn, err = wire.New(nc, cfg.Role); err != nil {
		return nil, err
	}
	c.log, err = session.Open(ctx, nc, session.Config{Prefix: cfg.Prefix, Tenant: cfg.Tenant, Role: cfg.Role, Bind: true})
	if err != nil {
		return nil, fmt.Errorf("open the sessions: %w", err)
	}
	c.store, err = artifact.Open(ctx, nc, artifact.Config{Role: cfg.Role, Bind: true})
	if err != nil {
		return nil, fmt.Errorf("open the artifacts: %w", err)
	}
	return c, nil
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

// May reports whether the client's role may ask for an operation.
func (c *Client) May(row operation.Row) bool { return row.Allows(c.cfg.Role) }

// reads reports whether a role may read sessions and artifacts.
func reads(role jobs.Role) bool { return role.All() || role == jobs.RoleViewer }

// Ask asks for an operation. The methods of Client are a shorter way to write it.
func Ask[Q, A any](ctx context.Context, c *Client, op operation.Operation[Q, A], question Q) (A, error) {
	for {
		var answer A
		err := newCall(c, op.Row, question).do(ctx, c.conn, &answer)
		if err == nil || c.waits == nil || op.Changes || !away(err) || ctx.Err() != nil {
			return answer, err
		}
		c.waits(err)
		pause(ctx)
	}
}

func newCall(c *Client, row operation.Row, question any) call {
	return call{subject: c.names.API(row.Name), operation: row.Name, by: c.cfg.By, request: question, within: answerWithin, waits: c.waits}
}
