package worker

import (
	"context"
	"net"

	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/internal/confine"
)

// serveNetwork leads what a jail opened for the allowed hosts out of it, until the
// jail ends.
func (a *attempt) serveNetwork(ctx context.Context, in confine.Jail, p *sandbox.Process, listeners []net.Listener) {
	if in.Network == nil {
		return
	}
	a.serving.Go(func() {
		_ = in.Network.Serve(ctx, listeners, p.PacketConns()) // it ends with the jail or with ctx, and says no more
	})
}

// reportNetwork waits until no jail uses the network any more, and says what was used.
func (a *attempt) reportNetwork(in confine.Jail) {
	if in.Network == nil {
		return
	}
	a.serving.Wait()
	used := in.Network.Used()
	if a.cfg.Hooks.Network != nil {
		a.cfg.Hooks.Network(a.rec, used)
	}
	a.events.Put(event.Make(event.JailNetwork(used)))
}

// violation tells what a jail wanted and did not get.
func (a *attempt) violation(v event.JailViolation) {
	if a.cfg.Hooks.Violation != nil {
		a.cfg.Hooks.Violation(a.rec, v)
	}
	a.events.Put(event.Make(event.JailViolation(v)))
	a.refused.Note(policy.KindHost, v.What(), v.Reason)
}
