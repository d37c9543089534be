package confine

import (
	"cmp"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/internal/verdict"
)

// A Way connects the agent's jail to the model API.
type Way struct {
	// Address is the address for the agent.
	Address string
	// Served says that the worker has a key of some model API.
	Served   bool
	listener net.Listener // of the host, if the jail opens none; else nil
}

// Close closes the listener of the host, if there is one.
func (w Way) Close() {
	if w.listener != nil {
		_ = w.listener.Close() // its server may have closed it
	}
}

// Model returns the way to the model API. For a job with the host's network it is a
// port of the host; it is opened if the worker serves any API.
func (j *Jail) Model(served bool) (Way, error) {
	if j.req.Job.Sandbox.Network != jobs.NetworkFull || !served {
		return Way{Address: j.gate, Served: served}, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Way{}, verdict.Failed(jobs.SandboxFailed, "open the way to the model API", err)
	}
	return Way{Address: l.Addr().String(), Served: true, listener: l}, nil
}

// A Start is one jail that is about to be started.
type Start struct {
	Spec sandbox.Spec
	// Program is this program, as the agent sees it, and Inside the URL of its worker;
	// empty: there is none.
	Program, Inside string
	// Version and Digest are those of the agent's program, if the job names a version.
	Version, Digest string

	model, inside   string       // the addresses in Spec.Listen; empty: absent
	hostModel, host net.Listener // of the host, instead of these; else nil
}

// Close closes the listeners of the host that the start has opened.
func (s *Start) Close() {
	if s.host != nil {
		_ = s.host.Close() // its server may have closed it
	}
}

// Listeners are those of a running jail, by name.
type Listeners struct {
	Model   net.Listener // for the model API; nil: there is none
	Inside  net.Listener // for the worker; nil: there is none
	Network []net.Listener
}

// Listeners returns the listeners of a running jail by name.
func (s *Start) Listeners(p *sandbox.Process) Listeners { return s.named(p.Listeners()) }

// named takes the listeners of the TCP addresses in Spec.Listen, in order.
func (s *Start) named(listeners []net.Listener) Listeners {
	named := Listeners{Model: s.hostModel, Inside: s.host}
	for _, address := range s.Spec.Listen {
		if strings.HasPrefix(address, "udp/") || len(listeners) == 0 {
			continue
		}
		l := listeners[0]
		listeners = listeners[1:]
		switch address {
		case s.model:
			named.Model = l
		case s.inside:
			named.Inside = l
		default:
			named.Network = append(named.Network, l)
		}
	}
	return named
}

// Agent returns the jail of the agent's own process. Model is its way to the model API;
// nil: it has none.
func (j *Jail) Agent(plan agent.Plan, model *Way) (*Start, error) {
	spec, err := j.base()
	if err != nil {
		return nil, err
	}
	spec.Args, spec.Home = plan.Args, j.Kept
	spec.Dial, spec.Grace = j.Attachable(), j.cfg.Grace
	// A proxy setting of the agent's own would hide the gate.
	env := slices.DeleteFunc(slices.Clone(plan.Env), func(kv string) bool { return has(j.env, kv) })
	spec.Env = slices.Concat(env, spec.Env)
	s := &Start{Spec: spec, Version: plan.Program.Version, Digest: plan.Program.Digest}
	switch {
	case model == nil:
	case model.listener != nil:
		s.hostModel = model.listener
	default:
		s.listenForModel(model.Address)
	}
	if err := j.showPlan(&s.Spec, plan); err != nil {
		return nil, err
	}
	firstInPath(&s.Spec, plan.Program.Bin)
	if err := j.showProgram(s); err != nil {
		return nil, err
	}
	if err := j.openInside(s); err != nil {
		return nil, err
	}
	if err := cmp.Or(j.terminals(s), j.remoteServers(s)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// listenForModel makes the jail open an address for the model API.
func (s *Start) listenForModel(address string) {
	s.model = address
	s.Spec.Network, s.Spec.Listen = sandbox.NetworkGate, append([]string{address}, s.Spec.Listen...)
}

// Command returns the jail of a command of the job.
func (j *Jail) Command(command string) (*Start, error) {
	spec, err := j.base()
	spec.Args = []string{"/bin/sh", "-c", command}
	return &Start{Spec: spec}, err
}

// Draft returns the jail of an agent that only answers: an empty workspace, no secret,
// no network, and no writable files. Model is its way to the model API; nil: it has
// none.
func (j *Jail) Draft(plan agent.Plan, model *Way) (*Start, error) {
	spec, err := j.around()
	if err != nil {
		return nil, err
	}
	spec.Network, spec.Listen = sandbox.NetworkNone, nil
	spec.Env = slices.DeleteFunc(spec.Env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(j.req.Job.Secrets, name) || has(j.env, kv)
	})
	spec.Env = slices.Concat(plan.Env, spec.Env, []string{"PENSTOCK_DRAFT=1"})
	for i := range spec.Mounts {
		spec.Mounts[i].Writable = false
	}
	spec.Args, spec.Grace = plan.Args, j.cfg.Grace
	firstInPath(&spec, plan.Program.Bin)
	s := &Start{Spec: spec, Version: plan.Program.Version, Digest: plan.Program.Digest}
	if model != nil {
		s.listenForModel(j.gate)
	}
	return s, j.showPlan(&s.Spec, plan)
}

// showProgram shows the command penstock in the agent's jail.
func (j *Jail) showProgram(s *Start) error {
	if j.cfg.Program == "" {
		return nil
	}
	dir := insideDir
	if j.Unjailed {
		dir = path.Join(path.Dir(j.home), "bin")
	}
	s.Program = path.Join(dir, "penstock")
	firstInPath(&s.Spec, dir)
	return j.link(&s.Spec, j.cfg.Program, s.Program)
}

// firstInPath puts a directory before the others of PATH, unless it is empty.
func firstInPath(s *sandbox.Spec, dir string) {
	for i, kv := range s.Env {
		if rest, ok := strings.CutPrefix(kv, "PATH="); ok && dir != "" {
			s.Env[i] = "PATH=" + dir + ":" + rest
		}
	}
}

// openInside opens a listener for the worker in the agent's jail, or on the host if the
// jail has no loopback of its own. A jail without any way out has none.
func (j *Jail) openInside(s *Start) error {
	if j.Offline() {
		return nil
	}
	address := insideAddress
	if j.Unjailed || s.Spec.Network == sandbox.NetworkFull {
		var err error
		if s.host, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return verdict.Failed(jobs.SandboxFailed, "open the agent's way to its worker", err)
		}
		address = s.host.Addr().String()
	} else {
		s.inside = address
		s.Spec.Network, s.Spec.Listen = sandbox.NetworkGate, append(slices.Clip(s.Spec.Listen), address)
	}
	s.Inside = j.req.Inside(address)
	s.Spec.Env = append(s.Spec.Env, InsideVariable+"="+s.Inside)
	return nil
}

// terminals says why an agent that requests terminals cannot have them here.
func (j *Jail) terminals(s *Start) error {
	switch {
	case !j.req.Job.Agent.Terminals:
		return nil
	case !j.Attachable():
		return verdict.Ended(jobs.SandboxMissing, "the job gives its agent terminals, and a jail of %s has none", j.Backend.Name())
	}
	return s.asksWorker("terminals")
}

// remoteServers says why an agent cannot use the MCP servers of its job that have a URL.
func (j *Jail) remoteServers(s *Start) error {
	if j.Servers == nil {
		return nil
	}
	return s.asksWorker("MCP servers with a url")
}

// asksWorker says why an agent cannot have what this program gets for it from the worker.
func (s *Start) asksWorker(what string) error {
	switch {
	case s.Inside == "":
		return verdict.Ended(jobs.InvalidJob, "the job gives its agent %s, and preset offline leaves it no way to its worker", what)
	case s.Program == "":
		return verdict.Ended(jobs.SandboxMissing, "the job gives its agent %s, and the worker has no program penstock for its jail", what)
	}
	return nil
}
