package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/session"
)

// bus is the transport over a connection to the broker.
type bus struct {
	role  jobs.Role
	names subject.Names
	conn  *wire.Conn
	log   *session.Log
	store *artifact.Store
}

func openBus(ctx context.Context, nc *nats.Conn, cfg Config) (*bus, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	b := &bus{role: cfg.Role, names: names}
	if b.conn, err = wire.New(nc, cfg.Role); err != nil {
		return nil, err
	}
	b.log, err = session.Open(ctx, nc, session.Config{Prefix: cfg.Prefix, Tenant: cfg.Tenant, Role: cfg.Role, Bind: true})
	if err != nil {
		return nil, fmt.Errorf("open the sessions: %w", err)
	}
	b.store, err = artifact.Open(ctx, nc, artifact.Config{Role: cfg.Role, Bind: true})
	if err != nil {
		return nil, fmt.Errorf("open the artifacts: %w", err)
	}
	return b, nil
}

// close leaves the connection to its owner.
func (b *bus) close() {}

// reads reports whether the role may read sessions and artifacts.
func (b *bus) reads() bool { return b.role.All() || b.role == jobs.RoleViewer }

func (b *bus) request(ctx context.Context, c call, body json.RawMessage) (json.RawMessage, error) {
	m := nats.NewMsg(b.names.API(c.row.Name))
	m.Data = body
	m.Header.Set(operation.CallerHeader, c.by)
	if c.via != "" {
		m.Header.Set(operation.WhoHeader, c.who)
		m.Header.Set(operation.ViaHeader, c.via)
		m.Header.Set(operation.RoleHeader, string(c.role))
	}
	if c.jobID != "" {
		m.Header.Set(operation.JobIDHeader, c.jobID)
	}
	c.trace.Put(m.Header.Set)
	msg, err := b.send(ctx, c, m)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w %s", ErrNoDispatcher, c.row.Name)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, &jobs.CodedError{Code: jobs.CodeTooLarge, Cause: err, Message: fmt.Sprintf(
			"ask to %s: the request has %d bytes, and a message of this broker at most %d: raise its max_payload, or send less", c.row.Name, len(body), b.conn.NC.MaxPayload())}
	case errors.Is(err, context.DeadlineExceeded), disconnected(err), errors.Is(err, nats.ErrConnectionClosed):
		return nil, noAnswer(c, err)
	case err != nil:
		return nil, fmt.Errorf("ask to %s: %w", c.row.Name, err)
	case msg.Header.Get(micro.ErrorHeader) == "":
		return msg.Data, nil
	}
	var refused operation.Refusal
	if err := json.Unmarshal(msg.Data, &refused); err != nil {
		return nil, fmt.Errorf("%s: %s", c.row.Name, msg.Header.Get(micro.ErrorHeader))
	}
	return nil, refused.Err()
}

// send sends a request, again while no dispatcher is there to have taken it.
func (b *bus) send(ctx context.Context, c call, m *nats.Msg) (*nats.Msg, error) {
	began := time.Now()
	for wait := firstPause; ; wait = min(2*wait, lastPause) {
		limited, done := context.WithTimeout(ctx, c.within)
		msg, err := b.conn.Request(limited, m)
		done()
		untaken := errors.Is(err, nats.ErrNoResponders) || disconnected(err)
		if !untaken || time.Since(began) > comingUp {
			return msg, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// disconnected reports whether a request was not sent because the connection is lost, and
// keeps nothing until it is back.
func disconnected(err error) bool { return errors.Is(err, nats.ErrReconnectBufExceeded) }

func (b *bus) follow(ctx context.Context, c *Client, rec jobs.Record, after uint64) iter.Seq2[jobs.Event, error] {
	if !b.reads() {
		return followRequests(ctx, c, rec.ID, after)
	}
	return b.log.Follow(ctx, rec.Session, after+1, session.FollowOptions{
		Job: rec.ID, Record: func(ctx context.Context) (jobs.Record, error) { return c.Get(ctx, rec.ID) },
	})
}

func (b *bus) stored(ctx context.Context, c *Client, id string, after uint64) iter.Seq2[jobs.Event, error] {
	if !b.reads() {
		return storedByRequests(ctx, c, id, after)
	}
	return func(yield func(jobs.Event, error) bool) {
		rec, err := c.Get(ctx, id)
		if err != nil {
			yield(jobs.Event{}, err)
			return
		}
		b.log.Read(ctx, rec.Session, after+1)(yield)
	}
}

func (b *bus) before(ctx context.Context, c *Client, id string, before uint64, most int) ([]jobs.Event, error) {
	if !b.reads() {
		return newest(storedByRequests(ctx, c, id, 0), before, most)
	}
	rec, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return b.log.Before(ctx, rec.Session, before, most)
}

func (b *bus) artifact(ctx context.Context, id string, epoch uint64, name string) (io.ReadCloser, error) {
	if !b.reads() {
		return nil, fmt.Errorf("%w: role %s does not read artifact %s from the object store", jobs.ErrForbidden, b.role, name)
	}
	return b.store.Get(ctx, id, epoch, name)
}

func (b *bus) patch(ctx context.Context, c *Client, id string) (io.ReadCloser, error) {
	if !b.reads() {
		content, err := Ask(ctx, c, operation.Patch, operation.Ref{ID: id})
		return io.NopCloser(bytes.NewReader(content.Patch)), err
	}
	rec, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.State != jobs.Finished {
		return nil, fmt.Errorf("%w: job %s is %s", jobs.ErrNotFinished, rec.ID, rec.State)
	}
	content, err := b.store.Get(ctx, rec.ID, rec.Epoch, jobs.PatchName)
	if errors.Is(err, jobs.ErrNotFound) {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	return content, err
}
