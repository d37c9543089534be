package worker

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A network is what all programs of an attempt reach besides the model API:
// nothing, the hosts on a list, or what the host reaches.
type network struct {
	*gate.Network                // nil without a list
	hosts         []string       // that are allowed
	listen        []string       // what each jail opens for it
	env           []string       // how programs find it
	serving       sync.WaitGroup // one for each jail
}

// reach prepares the network that the job asks for.
func (a *attempt) reach(in jail) (err error) {
	if a.job.Sandbox.Network != jobs.NetworkAllowlist {
		return nil
	}
	cfg := a.cfg.Network
	cfg.Hosts = slices.Concat(cfg.Hosts, a.cfg.Policy.Hosts, a.job.Sandbox.AllowHosts)
	cfg.Refused, a.net.hosts = a.violation, cfg.Hosts
	budget := a.cfg.Policy.Limits.FillBudget(Budget(a.job.Sandbox.Limits))
	cfg.MaxBytes, cfg.MaxConnections = budget.Traffic, budget.Connections
	if in.shared() {
		cfg.Token = a.tokens.network
	}
	if a.net.Network, err = gate.NewNetwork(cfg); err != nil {
		return verdict.Failed(jobs.InvalidJob, "allow hosts", err)
	}
	a.net.listen = a.net.Listen()
	if in.unjailed {
		// There is no loopback of its own to have a name service on, and
		// nothing that could keep programs to it.
		address, err := freeAddress()
		if err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "find a port for the way to the allowed hosts", err)
		}
		a.net.listen = []string{address}
	}
	a.net.env = a.net.Env(a.net.listen[0])
	return nil
}

// offline reports whether nothing leads out, not even to a model API.
func (a *attempt) offline() bool {
	preset := a.job.Sandbox.Preset
	if preset == "strict" && a.cfg.Policy.Preset != "" {
		preset = a.cfg.Policy.Preset
	}
	return preset == string(sandbox.PresetOffline)
}

// connect gives a jail the network. What the job sets itself stays.
func (a *attempt) connect(s *sandbox.Spec) {
	switch a.job.Sandbox.Network {
	case jobs.NetworkFull:
		s.Network = sandbox.NetworkFull
	case jobs.NetworkAllowlist:
		s.Network, s.Listen = sandbox.NetworkGate, slices.Clone(a.net.listen)
		for _, kv := range a.net.env {
			if !has(s.Env, kv) {
				s.Env = append(s.Env, kv)
			}
		}
	}
}

// has reports whether the variable of kv is in an environment.
func has(env []string, kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	return slices.ContainsFunc(env, func(other string) bool { return strings.HasPrefix(other, name+"=") })
}

// serve leads what a jail opened for the network out of it, until the jail
// ends.
func (a *attempt) serve(ctx context.Context, p *sandbox.Process, listeners []net.Listener) {
	if a.net.Network == nil {
		return
	}
	a.net.serving.Go(func() {
		_ = a.net.Serve(ctx, listeners, p.PacketConns()) // it ends with the jail or with ctx, and says no more
	})
}

// leave waits until nothing of the network is left, and sums it up.
func (a *attempt) leave() {
	if a.net.Network == nil {
		return
	}
	a.net.serving.Wait()
	used := a.net.Used()
	if a.cfg.Hooks.Network != nil {
		a.cfg.Hooks.Network(a.rec, used)
	}
	a.events.put(event.Make(event.JailNetwork(used)))
}

// violation tells what a jail wanted and did not get.
func (a *attempt) violation(v event.JailViolation) {
	if a.cfg.Hooks.Violation != nil {
		a.cfg.Hooks.Violation(a.rec, v)
	}
	a.events.put(event.Make(event.JailViolation(v)))
	a.refused.Note(policy.KindHost, v.What(), v.Reason)
}
