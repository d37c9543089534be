package worker

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/redact"
)

// gateAddress is where the agents find the model API, inside.
const gateAddress = "127.0.0.1:3128"

// inputDir is where an agent finds its prompt and files, inside.
const inputDir = "/job"

// A jail is what all programs of an attempt share: the mechanism, the
// workspace, and where things are.
type jail struct {
	backend  sandbox.Backend
	dir      string // the workspace, on the host
	unjailed bool
	// As the programs see them.
	cwd, home, input, gate string
}

// backend returns the jail that the job asks for.
func (a *attempt) backend() (sandbox.Backend, error) {
	backend, err := a.cfg.Backend(a.job.Sandbox.Backend)
	if err != nil {
		return nil, failed(jobs.SandboxMissing, "choose a jail", err)
	}
	a.result.Backend = backend.Name()
	return backend, nil
}

// launch collects what the adapter has to know.
func (a *attempt) launch(in jail, adapter agent.Adapter) (agent.Launch, error) {
	program, err := a.cfg.Agents.Find(adapter.Name())
	if err != nil {
		return agent.Launch{}, err
	}
	l := agent.Launch{
		Job: a.job, ID: a.rec.ID, Session: a.rec.Session, Attempt: a.rec.Attempt,
		Cwd: in.cwd, Files: in.input, Program: program,
	}
	if len(a.cfg.Gates) > 0 {
		l.Gate = "http://" + in.gate
	}
	return l, nil
}

// gateTo is the way to a model API. A program that names none may find the
// first of them useful.
func (a *attempt) gateTo(api string) *gate.Gate {
	if api == "" {
		api = "anthropic"
	}
	return a.cfg.Gates[api]
}

// spec is the jail of the agent's own process.
func (a *attempt) spec(in jail, plan agent.Plan) (sandbox.Spec, error) {
	s, err := a.base(in)
	if err != nil {
		return s, err
	}
	s.Args = plan.Args
	s.Env = slices.Concat(plan.Env, s.Env)
	var files []sandbox.File
	for _, f := range plan.Files {
		files = append(files, sandbox.File{Path: path.Join(in.input, f.Path), Data: f.Content})
	}
	var mounts []sandbox.Mount
	for _, p := range plan.Mounts {
		mounts = append(mounts, sandbox.Mount{Source: p, Target: p})
	}
	if a.gateTo(plan.API) != nil {
		s.Network, s.Listen = sandbox.NetworkGate, []string{in.gate}
	}
	return s, in.show(&s, files, mounts)
}

// base is the jail of every program of the attempt.
func (a *attempt) base(in jail) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Env: a.environment(in), Workspace: in.dir,
		Limits: a.limits(), Label: a.name(),
	}
	if a.job.Sandbox.Preset != "strict" {
		s.Preset = sandbox.Preset(a.job.Sandbox.Preset)
	}
	for _, feature := range a.job.Sandbox.AllowWeaker {
		s = s.Allow(sandbox.Feature(feature))
	}
	if in.unjailed {
		s = s.Allow(without...)
	}
	return s, in.show(&s, nil, a.cfg.Mounts)
}

func (a *attempt) limits() sandbox.Limits {
	asked := a.job.Sandbox.Limits
	return sandbox.Limits{Memory: int64(asked.Memory), CPUs: asked.CPUs, PIDs: asked.PIDs, FileSize: int64(asked.Disk)}
}

// environment is what every program of the attempt finds besides its own
// variables. Nothing is inherited from the worker.
func (a *attempt) environment(in jail) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + in.home, "TMPDIR=/tmp", "LANG=C.UTF-8", "USER=agent", "LOGNAME=agent", "SHELL=/bin/sh", "TERM=dumb",
	}
	for _, name := range slices.Sorted(maps.Keys(a.job.Env)) {
		env = append(env, name+"="+a.job.Env[name])
	}
	for _, name := range a.job.Secrets {
		if value, ok := a.cfg.Secret(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// redactor removes the values of the job's secrets, and the worker's own
// keys, from everything that leaves the worker. A secret that the worker does
// not have is an error; the redactor is good all the same.
func (a *attempt) redactor() (*redact.Redactor, error) {
	var missing error
	secrets := maps.Clone(a.cfg.Keys)
	for _, name := range a.job.Secrets {
		value, ok := a.cfg.Secret(name)
		if !ok {
			missing = ended(jobs.SecretMissing, "the worker has no secret %s: set PENSTOCK_SECRET_%s in its environment", name, name)
			continue
		}
		if secrets == nil {
			secrets = map[string]string{}
		}
		secrets[name] = value
	}
	r, skipped := redact.New(secrets)
	for _, s := range skipped {
		a.log.Warn("a secret cannot be removed from output", "name", s.Name, "why", s.Reason)
	}
	return r, missing
}

// start starts a jail and says so.
func (a *attempt) start(ctx context.Context, in jail, spec sandbox.Spec, streams sandbox.Streams) (*sandbox.Process, error) {
	began := time.Now()
	p, err := sandbox.Start(ctx, in.backend, spec, streams)
	if a.cfg.Hooks.Jailed != nil {
		a.cfg.Hooks.Jailed(a.job.Isolation, time.Since(began), err)
	}
	if err != nil {
		return nil, failed(startReason(err), "start the jail", err)
	}
	// When the lease is lost there is no time to be polite: another worker may
	// begin before a program that was asked to end has ended.
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), jobs.ErrFenced) {
			_ = p.Close(context.WithoutCancel(ctx)) // Wait reports what failed
		}
	})
	a.result.Durations.Jail += a.stage("jail", began)
	weaker := words(p.Weaker())
	for _, w := range weaker {
		if !slices.Contains(a.result.Weaker, w) {
			a.result.Weaker = append(a.result.Weaker, w)
		}
	}
	a.events.put(jobs.NewEvent(jobs.JailStarted, jailStarted{Backend: in.backend.Name(), Command: spec.Args, Weaker: weaker}))
	return p, nil
}

// startReason tells a jail that cannot be made here from a program that is
// not in it.
func startReason(err error) jobs.Reason {
	if _, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return jobs.SandboxMissing
	}
	if start, ok := errors.AsType[*sandbox.StartError](err); ok && start.Step == "execute" {
		return jobs.AgentMissing
	}
	return jobs.SandboxFailed
}

type jailStarted struct {
	Backend string   `json:"backend"`
	Command []string `json:"command"`
	Weaker  []string `json:"weaker,omitempty"`
}

func words(features []sandbox.Feature) []string {
	var out []string
	for _, f := range features {
		out = append(out, string(f))
	}
	return out
}
