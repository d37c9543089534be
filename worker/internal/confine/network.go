package confine

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Reach returns the jail with the network that the job requests: none, the hosts on a
// list, or the host's network.
func (j Jail) Reach() (Jail, error) {
	if j.req.Job.Sandbox.Network != jobs.NetworkAllowlist {
		return j, nil
	}
	cfg := j.cfg.Network
	cfg.Hosts = slices.Concat(cfg.Hosts, j.cfg.Policy.Hosts, j.req.Job.Sandbox.AllowHosts)
	cfg.Refused, j.hosts = j.req.Refused, cfg.Hosts
	budget := j.cfg.Policy.Limits.FillBudget(Budget(j.req.Job.Sandbox.Limits))
	cfg.MaxBytes, cfg.MaxConnections = budget.Traffic, budget.Connections
	if j.shared() {
		cfg.Token = j.req.Token
	}
	network, err := gate.NewNetwork(cfg)
	if err != nil {
		return j, verdict.Failed(jobs.InvalidJob, "allow hosts", err)
	}
	j.Network, j.listen = network, network.Listen()
	if j.Unjailed {
		// Such a jail has no loopback of its own for a name service, and cannot force
		// programs to use the proxy.
		address, err := freeAddress()
		if err != nil {
			return j, verdict.Failed(jobs.WorkspaceFailed, "find a port for the way to the allowed hosts", err)
		}
		j.listen = []string{address}
	}
	j.env = network.Env(j.listen[0])
	return j, nil
}

// Offline reports whether the jail has no way out, not even to a model API.
func (j Jail) Offline() bool {
	preset := j.req.Job.Sandbox.Preset
	if preset == "strict" && j.cfg.Policy.Preset != "" {
		preset = j.cfg.Policy.Preset
	}
	return preset == string(sandbox.PresetOffline)
}

// connect gives a jail the network. Variables of the job itself stay.
func (j Jail) connect(s *sandbox.Spec) {
	switch j.req.Job.Sandbox.Network {
	case jobs.NetworkFull:
		s.Network = sandbox.NetworkFull
	case jobs.NetworkAllowlist:
		s.Network, s.Listen = sandbox.NetworkGate, slices.Clone(j.listen)
		for _, kv := range j.env {
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
