// Package jails starts the jails of one attempt, and runs the job's commands in them.
//
//	confine.Jail ──Command, Agent, Draft──▶ confine.Start ──[Set.Start]──▶ sandbox.Process
//	                                                             └──▶ network ──[Set.Wait]──▶ usage
//
// Package confine decides what a jail may access. Here it is started, connected to the
// allowed hosts, and reported. [Refusals] reports what jails requested and did not get.
package jails

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/confine"
	"github.com/penstock-run/penstock/worker/internal/outcome"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Config connects the jails of an attempt to the attempt.
type Config struct {
	// Diagnosed adds its cause to an error of a jail, if that is known.
	Diagnosed func(error) error
	// Started is called after each start of a jail; may be nil.
	Started func(took time.Duration, err error)
	// Network is called with the usage of the network by all jails; may be nil.
	Network func(event.JailNetwork)
	// Took reports the time of a step, adds it to the result, and returns it in seconds.
	Took     func(step string, began time.Time) float64
	Refusals *Refusals
	Result   *outcome.Result
	// Tell records events of the session. It must not block.
	Tell func(...event.Event)
}

// A Set is the jails of one attempt.
type Set struct {
	cfg     Config
	serving sync.WaitGroup // one for each jail that is connected to the allowed hosts
}

// New returns the set of an attempt that has started no jail.
func New(cfg Config) *Set { return &Set{cfg: cfg} }

// Start starts a jail, reports it, and connects it to the allowed hosts.
func (s *Set) Start(ctx context.Context, in *confine.Jail, start *confine.Start, streams sandbox.Streams) (*sandbox.Process, error) {
	began := time.Now()
	p, err := sandbox.Start(ctx, in.Backend, start.Spec, streams)
	if s.cfg.Started != nil {
		s.cfg.Started(time.Since(began), err)
	}
	if err != nil {
		return nil, verdict.Failed(verdict.StartReason(err), "start the jail", s.cfg.Diagnosed(err))
	}
	// When the lease is lost there is no time to be polite: another worker may
	// begin before a program that was asked to end has ended.
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), jobs.ErrFenced) {
			_ = p.Close(context.WithoutCancel(ctx)) // Wait reports what failed
		}
	})
	s.cfg.Took("jail", began)
	s.connect(ctx, in, p, start.Listeners(p).Network)
	weaker := words(p.Weaker())
	s.cfg.Result.SetBackend(in.Backend.Name(), weaker...)
	s.cfg.Result.AddRoot(p.Root())
	s.cfg.Tell(event.Make(event.JailStarted{Backend: in.Backend.Name(), Command: start.Spec.Args, Version: start.Version, Digest: start.Digest, Root: p.Root(), Weaker: weaker, Watched: words(p.Watched())}))
	return p, nil
}

// connect serves the connections of a jail to the allowed hosts until the jail ends.
func (s *Set) connect(ctx context.Context, in *confine.Jail, p *sandbox.Process, listeners []net.Listener) {
	if in.Network == nil {
		return
	}
	s.serving.Go(func() {
		_ = in.Network.Serve(ctx, listeners, p.PacketConns()) // it ends with the jail or with ctx, and says no more
	})
}

// Wait waits until no jail uses the network any more, and reports its usage.
func (s *Set) Wait(in *confine.Jail) {
	if in.Network == nil && in.Servers == nil {
		return
	}
	s.serving.Wait()
	used := gate.Used(in.Network, in.Servers)
	if s.cfg.Network != nil {
		s.cfg.Network(used)
	}
	s.cfg.Tell(event.Make(event.JailNetwork(used)))
}

func words(features []sandbox.Feature) []string {
	var out []string
	for _, f := range features {
		out = append(out, string(f))
	}
	return out
}
