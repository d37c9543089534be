// Package confine decides what the programs of an attempt may access. From the job, the
// worker's policy and the workspace it makes the specification of each jail:
//
//	job + policy + workspace ──New──▶ Jail ──Command, Agent, Draft──▶ Start ──Listeners──▶ by name
//
// It starts no jail and serves no listener. It opens only listeners of the host, for
// jails that have no loopback of their own; [Start.Close] and [Way.Close] close them.
package confine

import (
	"net"
	"os"
	"path"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	jailpolicy "github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/policy"
)

// InsideVariable is the variable in the agent's jail that has the URL of its worker.
const InsideVariable = "PENSTOCK_INSIDE"

// The addresses of the model API and of the worker in a jail with a loopback of its
// own, the path at which the jail shows this program as "penstock", and the directory
// of an agent's prompt and files.
const (
	gateAddress   = "127.0.0.1:3128"
	insideAddress = "127.0.0.1:3127"
	insideDir     = "/penstock/bin"
	inputDir      = "/job"
)

// Config is the worker's part of the jails of all its jobs.
type Config struct {
	Policy policy.Policy
	Where  jailpolicy.Where // the base of relative patterns in the policy
	// Mounts are directories of the host that every jail sees read-only, unless it
	// has a root of its own from an image.
	Mounts []sandbox.Mount
	// Secret returns the value of a secret that a job names.
	Secret func(name string) (string, bool)
	// DiskLimit bounds the growth of a workspace whose job names no limit; 0: no limit.
	DiskLimit int64
	// Program is this program; empty: jails do not have it.
	Program string
	// Network is the network of jobs with an allow-list, besides their own hosts.
	Network gate.NetworkConfig
	// Grace is how long an agent may take to end when it is asked to.
	Grace time.Duration
}

// A Space is the workspace as a jail needs it.
type Space interface {
	Dir() string
	Show(spec *sandbox.Spec)
	// Beside returns a directory of the host that is removed with the workspace.
	Beside() (string, error)
}

// A Request is the request of one attempt.
type Request struct {
	Job     jobs.Job
	Label   string // of the attempt's jails
	Backend sandbox.Backend
	Space   Space
	// Trace is the span of the attempt, which programs pass on to what they call.
	Trace jobs.Trace
	// KeepHome: the agent has the same home in each of its runs.
	KeepHome bool
	// Inside returns the URL of the worker, for programs that reach it at an address.
	Inside func(address string) string
	// Token is for programs in a jail that shares its loopback with others: they send
	// it to reach the allowed hosts.
	Token string
	// Refused is called with each refused request for the network.
	Refused func(event.JailViolation)
}

// A Jail is the common part of the jails of an attempt: the backend, the workspace, and
// the paths.
type Jail struct {
	Backend sandbox.Backend
	// As the programs see them: the workspace, and the files of an agent's plan.
	Cwd, Files string
	// Kept is a directory of the host that is the agent's home in all of its runs;
	// empty: each run has a home of its own. No check ever sees it.
	Kept string
	// Unjailed: the programs share everything with the host.
	Unjailed bool
	// Network connects programs to the allowed hosts; nil: the job has no list.
	Network *gate.Network
	// Servers connects the worker to the job's MCP servers that have a URL; nil: it has none.
	Servers *gate.Network

	cfg        Config
	req        Request
	home, gate string
	hosts      []string // allowed hosts
	listen     []string // what each jail opens for Network
	env        []string // variables that point programs to the network
}

// New returns the common part of the attempt's jails. Without a jail no files can be
// shown inside, so they go to a directory of the host, which is removed with the
// workspace. The home of an agent that resumes its conversation is such a directory,
// too.
func New(cfg Config, req Request) (*Jail, error) {
	j := &Jail{
		cfg: cfg, req: req, Backend: req.Backend, Unjailed: req.Backend.Name() == "none",
		Cwd: sandbox.WorkspacePath, home: sandbox.HomePath, Files: inputDir, gate: gateAddress,
	}
	if !j.Unjailed && !req.KeepHome {
		return j, nil
	}
	beside, err := req.Space.Beside()
	if err != nil {
		return nil, verdict.Failed(jobs.WorkspaceFailed, "make a directory for the agent's input", err)
	}
	home := path.Join(beside, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		return nil, verdict.Failed(jobs.WorkspaceFailed, "make the agent's home", err)
	}
	if !j.Unjailed {
		j.Kept = home
		return j, nil
	}
	j.Cwd, j.home, j.Files = req.Space.Dir(), home, path.Join(beside, "job")
	j.gate, err = freeAddress()
	return j, verdict.Failed(jobs.WorkspaceFailed, "find a port for the way to the model API", err)
}

// Around returns the same jail around another workspace.
func (j *Jail) Around(space Space) *Jail {
	other := *j
	other.req.Space = space
	return &other
}

// container reports whether the job's programs come from an image.
func (j *Jail) container() bool { return j.req.Job.Isolation == jobs.IsolationContainer }

// shared reports whether programs outside of the jail can reach its listeners.
func (j *Jail) shared() bool { return j.Unjailed || j.Backend.Name() == "seatbelt" }

// Attachable reports whether the agent's jail can have terminals. The policy restricts
// people: an agent's own terminals give it no more rights.
func (j *Jail) Attachable() bool {
	return (j.cfg.Policy.Attach != "deny" || j.req.Job.Agent.Terminals) && j.Backend.Name() != "seatbelt"
}

// freeAddress is one on the host's own loopback, which all programs without a
// jail share. Another program may take it before the agent's start opens it; then the
// start fails, and the job is tried again.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
