// Package layout compares the streams, buckets and consumers on a broker with
// those that this release needs, and changes them.
//
// The queue, the session log, the artifact store and the tokens create themselves from the
// same list; this package only walks through it. The operator of the broker is
// free to set every field that the list leaves open, such as the placement of a
// stream or a bound on its bytes. Assets of a newer release are left alone unless
// the caller asks for the change.
package layout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/audit"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/queue"
	"github.com/penstock-run/penstock/jobs/session"
	"github.com/penstock-run/penstock/jobs/token"
	"github.com/penstock-run/penstock/jobs/webhook"
)

// Config says what is wanted.
type Config struct {
	Prefix string // of every subject; default "penstock.v1"
	// Replicas and Lease are those of the installation that there is, unless
	// others are named; of a new one 1 and 10 s.
	Replicas int
	Lease    time.Duration
	// Downgrade takes back what a newer release has made.
	Downgrade bool
	// How long things are kept, and how much of them; zero is the default.
	Events, Results, Artifacts, Dead, Audit time.Duration
	EventsBytes, ArtifactsBytes             int64
}

// Way says how to resolve a difference.
type Way string

// The ways.
const (
	Create Way = "create" // it does not exist
	Change Way = "change" // in place
	Refuse Way = "refuse" // it cannot be changed in place
	Newer  Way = "newer"  // a newer release has made it so
)

// A Difference is one thing on the broker that is not as this release wants it.
type Difference struct {
	Kind   string `json:"kind"` // stream, bucket, object store or consumer
	Name   string `json:"name"`
	Field  string `json:"field,omitempty"` // empty: all of it is missing
	Is     string `json:"is,omitempty"`
	Wanted string `json:"wanted,omitempty"`
	Way    Way    `json:"way"`
	Why    string `json:"why,omitempty"` // it cannot be changed in place
}

// A part is an asset and how it differs.
type part struct {
	asset  wire.Asset
	exists bool
	fields []wire.Field // that differ
	layout int
}

// Diff returns how the broker differs, without changing anything.
func Diff(ctx context.Context, nc *nats.Conn, cfg Config) ([]Difference, error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return nil, err
	}
	parts, err := look(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	var all []Difference
	for _, p := range parts {
		all = append(all, p.differences(cfg)...)
	}
	return all, nil
}

// assets lists what is wanted, in the order in which it must be made.
func assets(ctx context.Context, conn *wire.Conn, cfg Config) ([]wire.Asset, error) {
	has, err := conn.Assets().Installed(ctx, subject.Marker)
	if err != nil {
		return nil, err
	}
	streams, err := conn.Assets().Streams(ctx)
	if err != nil {
		return nil, err
	}
	all, err := queue.Assets(queue.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, Lease: cfg.Lease, DeadRetention: cfg.Dead}, has, streams)
	if err != nil {
		return nil, err
	}
	events, err := session.Assets(session.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, Retention: cfg.Events, MaxBytes: cfg.EventsBytes}, has)
	if err != nil {
		return nil, err
	}
	store := artifact.Assets(artifact.Config{
		Replicas: cfg.Replicas, Retention: cfg.Artifacts, Results: cfg.Results, StoreBytes: cfg.ArtifactsBytes,
	}, has)
	tokens, err := token.Assets(token.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas}, has)
	if err != nil {
		return nil, err
	}
	kept, err := audit.Assets(audit.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, Retention: cfg.Audit}, has)
	if err != nil {
		return nil, err
	}
	hooks, err := webhook.Assets(webhook.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas}, has)
	if err != nil {
		return nil, err
	}
	return slices.Concat(all, events, store, tokens, kept, hooks), nil
}

func look(ctx context.Context, conn *wire.Conn, cfg Config) ([]part, error) {
	all, err := assets(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	var parts []part
	for _, a := range all {
		p, err := lookAt(ctx, conn, a)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func lookAt(ctx context.Context, conn *wire.Conn, a wire.Asset) (part, error) {
	fields, layout, err := conn.Assets().Compare(ctx, a)
	if errors.Is(err, jobs.ErrNotFound) {
		return part{asset: a}, nil
	}
	return part{asset: a, exists: true, fields: fields, layout: layout}, err
}

func (p part) differences(cfg Config) []Difference {
	one := Difference{Kind: p.asset.Kind, Name: p.asset.Name, Way: Create}
	if !p.exists {
		return []Difference{one}
	}
	var all []Difference
	for _, f := range p.fields {
		one.Field, one.Is, one.Wanted, one.Way, one.Why = f.Name, f.Is, f.Wanted, Change, f.Fixed
		switch {
		case p.layout > wire.Layout && !cfg.Downgrade:
			one.Way, one.Why = Newer, fmt.Sprintf("it is of layout %d, and this release knows %d", p.layout, wire.Layout)
		case f.Fixed != "":
			one.Way = Refuse
		}
		all = append(all, one)
	}
	return all
}
