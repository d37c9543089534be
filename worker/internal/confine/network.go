package confine

import (
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// Reach gives the jail the network that the job requests: none, the hosts on a
// list, or the host's network; and the worker's own way to the job's MCP servers.
func (j *Jail) Reach() error {
	if err := j.reachServers(); err != nil || j.req.Job.Sandbox.Network != jobs.NetworkAllowlist {
		return err
	}
	cfg := j.cfg.Network
	cfg.Hosts = slices.Concat(cfg.Hosts, j.cfg.Policy.Hosts, j.req.Job.Sandbox.AllowHosts)
	j.hosts = cfg.Hosts
	cfg = j.bounded(cfg)
	if j.shared() {
		cfg.Token = j.req.Token
	}
	network, err := gate.NewNetwork(cfg)
	if err != nil {
		return verdict.Failed(jobs.InvalidJob, "allow hosts", err)
	}
	j.Network, j.listen = network, network.Listen()
	if j.Unjailed {
		// Such a jail has no loopback of its own for a name service, and cannot force
		// programs to use the proxy.
		address, err := freeAddress()
		if err != nil {
			return verdict.Failed(jobs.WorkspaceFailed, "find a port for the way to the allowed hosts", err)
		}
		j.listen = []string{address}
	}
	j.env = network.Env(j.listen[0])
	return nil
}

// bounded is a network with the budget of the jail.
func (j *Jail) bounded(cfg gate.NetworkConfig) gate.NetworkConfig {
	budget := j.cfg.Policy.Limits.FillBudget(Budget(j.req.Job.Sandbox.Limits))
	cfg.MaxBytes, cfg.MaxConnections, cfg.Refused = budget.Traffic, budget.Connections, j.req.Refused
	return cfg
}

// reachServers gives the jail a way to the job's MCP servers that have a URL. No program of
// the jail can use it for anything else.
func (j *Jail) reachServers() error {
	hosts := serverHosts(j.req.Job)
	if len(hosts) == 0 {
		return nil
	}
	cfg := j.bounded(j.cfg.Network)
	// Those of the worker and of its policy are for names that lead to private networks.
	cfg.Hosts, cfg.Ask = slices.Concat(cfg.Hosts, j.cfg.Policy.Hosts, j.cfg.Policy.MCPHosts, hosts), nil
	var err error
	j.Servers, err = gate.NewNetwork(cfg)
	return verdict.Failed(jobs.InvalidJob, "allow the hosts of MCP servers", err)
}

// serverHosts are the hosts, with ports, of a job's MCP servers that have a URL.
func serverHosts(job jobs.Job) (hosts []string) {
	for _, s := range job.Agent.MCPServers {
		if host := s.Host(); host != "" {
			hosts = append(hosts, host)
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Offline reports whether the jail has no way out, not even to a model API.
func (j *Jail) Offline() bool {
	preset := j.req.Job.Sandbox.Preset
	if preset == "strict" && j.cfg.Policy.Preset != "" {
		preset = j.cfg.Policy.Preset
	}
	return preset == string(sandbox.PresetOffline)
}

// connect gives a jail the network. Variables of the job itself stay.
func (j *Jail) connect(s *sandbox.Spec) {
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
