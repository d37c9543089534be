// Package part opens a part of an installation: the log of events, the store of artifacts,
// the tokens, … Each has streams and buckets of its own.
package part

import (
	"cmp"
	"context"
	"errors"
	"maps"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// Config says how a part is opened.
type Config struct {
	Prefix string
	// Role is the one of the connection's credential.
	Role jobs.Role
	// Replicas is of what is made. What the installation was made with comes first, unless
	// Upgrade is set.
	Replicas int
	// Upgrade changes what exists to this configuration.
	Upgrade bool
	// Bind takes what is on the broker as it is, and makes nothing there.
	Bind bool
	// Assets lists what the part needs on the broker.
	Assets func(names subject.Names, replicas int) []wire.Asset
}

// Open creates what is missing of a part, or binds to what is there.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*wire.Conn, subject.Names, error) {
	names, err := subject.New(cfg.Prefix)
	if err != nil {
		return nil, names, err
	}
	conn, err := wire.New(nc, cfg.Role)
	if err != nil {
		return nil, names, err
	}
	if conn.Bound = conn.Bound || cfg.Bind; conn.Bound {
		return conn, names, nil
	}
	return conn, names, conn.Assets().EnsureAll(ctx, subject.Marker, func(has wire.Installed) []wire.Asset {
		replicas := cmp.Or(has.Replicas, cfg.Replicas)
		if cfg.Upgrade {
			replicas = cmp.Or(cfg.Replicas, has.Replicas)
		}
		return cfg.Assets(names, replicas)
	}, cfg.Upgrade)
}

// Remove replaces the value of a key by the message that it was removed, if w.Expect is
// still its sequence; else it is [wire.ErrConflict]. A full store, which has no room for that
// message, forgets the key first, and may then keep no message.
func Remove(ctx context.Context, c *wire.Conn, w wire.Write) error {
	w.Header = maps.Clone(w.Header)
	if w.Header == nil {
		w.Header = nats.Header{}
	}
	w.Header.Set("KV-Operation", "DEL")
	_, err := c.Put(ctx, w)
	if !errors.Is(err, jobs.ErrFull) && !wire.Refused(err) {
		return err
	}
	if err := c.Purge(ctx, w.Stream, w.Subject); err != nil {
		return err
	}
	w.Expect, w.Data = 0, nil // what was freed has room for no more
	_, err = c.Put(ctx, w)
	if errors.Is(err, jobs.ErrFull) || wire.Refused(err) || errors.Is(err, wire.ErrConflict) { // in conflict with a new value
		return nil
	}
	return err
}
