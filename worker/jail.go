package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/policy"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/internal/redact"
	"github.com/penstock-run/penstock/worker/internal/verdict"
	"github.com/penstock-run/penstock/worker/workspace"
)

// gateAddress is where the agents find the model API, inside.
const gateAddress = "127.0.0.1:3128"

// Path is where programs are looked for inside, unless a policy or a job says
// otherwise.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inputDir is where an agent finds its prompt and files, inside.
const inputDir = "/job"

// A jail is what all programs of an attempt share: the mechanism, the
// workspace, and where things are.
type jail struct {
	backend  sandbox.Backend
	space    *workspace.Workspace
	unjailed bool
	// As the programs see them.
	cwd, home, input, gate string
	// kept is a directory of the host that is the agent's home from one of its
	// runs to the next; empty: each has one of its own. No check ever sees it.
	kept string
	// door is the way to the model API of a jail with the host's network, which
	// opens nothing of its own; else nil.
	door net.Listener
	// inside is what leads from such a jail to the worker; else nil.
	inside net.Listener
	// program is this program, as the agent sees it, and url its way to the worker;
	// empty: there is none.
	program, url string
}

// shared reports whether what the jail listens on can be reached by others than
// the programs in it.
func (in jail) shared() bool { return in.unjailed || in.backend.Name() == "seatbelt" }

// tokens are what the programs of one attempt have to send to the worker's
// listeners, instead of credentials. Each is good for one of them.
type tokens struct{ model, network string }

func newTokens() tokens {
	return tokens{model: "penstock-" + strings.ToLower(rand.Text()), network: strings.ToLower(rand.Text())}
}

// backend returns the jail that the job asks for.
func (a *attempt) backend() (sandbox.Backend, error) {
	name := a.job.Sandbox.Backend
	if a.container() {
		name = "oci" // the only one whose jails have a root from an image
	}
	backend, err := a.cfg.Backend(name)
	if err != nil {
		return nil, verdict.Failed(jobs.SandboxMissing, "choose a jail", a.diagnosed(err))
	}
	a.result.Backend = backend.Name()
	// What the worker prefers may be something else than the policy permits.
	return backend, a.deny(a.cfg.Policy.Permits(policy.Request{Backend: backend.Name()}))
}

// container reports whether the job's programs come from an image.
func (a *attempt) container() bool { return a.job.Isolation == jobs.IsolationContainer }

// launch collects what the adapter has to know.
func (a *attempt) launch(in jail, adapter agent.Adapter) (agent.Launch, error) {
	var program agent.Program
	if !a.container() {
		var err error
		if program, err = a.cfg.Agents.Find(adapter.About().Name); err != nil {
			return agent.Launch{}, err
		}
	}
	l := agent.Launch{
		Job: a.job, ID: a.rec.ID, Session: a.rec.Session, Attempt: a.rec.Attempt,
		Cwd: in.cwd, Files: in.input, Program: program, Notice: a.notice, Depends: a.depends,
		Round: a.talk.round, Resume: a.talk.resume, Variable: InsideVariable,
	}
	if len(a.cfg.Gates) > 0 {
		l.Gate, l.Key = "http://"+in.gate, a.tokens.model
	}
	if a.talk.round == 0 {
		if adapter.About().Protocol != "command" { // whose programs ask again
			l.Replies = a.replies
		}
		l = a.carry(l, adapter)
	}
	if failed := a.talk.failed; failed != nil {
		l = l.Failed(failed.check.Check, failed.check.Output)
	}
	return l, nil
}

// gateTo is the way to a model API. A program that names none may find the
// first of them useful.
func (a *attempt) gateTo(api string) *gate.Gate {
	if a.offline() {
		return nil
	}
	if api == "" {
		api = "anthropic"
	}
	return a.cfg.Gates[api]
}

// spec is the jail of the agent's own process, with a door to the model API
// where there is a way from it.
func (a *attempt) spec(in jail, plan agent.Plan, way bool) (sandbox.Spec, error) {
	s, err := a.base(in)
	if err != nil {
		return s, err
	}
	s.Args, s.Home = plan.Args, in.kept
	s.Dial = a.lookable()
	// An agent's own idea of what is behind a proxy knows only the gate.
	env := slices.DeleteFunc(slices.Clone(plan.Env), func(kv string) bool { return has(a.net.env, kv) })
	s.Env = slices.Concat(env, s.Env)
	var files []sandbox.File
	for _, f := range plan.Files {
		files = append(files, sandbox.File{Path: path.Join(in.input, f.Path), Data: f.Content})
	}
	var mounts []sandbox.Mount
	for _, p := range plan.Mounts {
		mounts = append(mounts, sandbox.Mount{Source: p, Target: p})
	}
	if in.door == nil && way {
		s.Network, s.Listen = sandbox.NetworkGate, append([]string{in.gate}, s.Listen...)
	}
	return s, in.show(&s, files, mounts)
}

// base is the jail of every program of the attempt.
func (a *attempt) base(in jail) (sandbox.Spec, error) {
	s, err := a.around(in)
	if err == nil {
		in.space.Show(&s)
	}
	return s, err
}

// around is the jail without the workspace.
func (a *attempt) around(in jail) (sandbox.Spec, error) {
	s := sandbox.Spec{
		Env: a.environment(in), Limits: a.limits(), Label: JailLabel(a.name(), a.cfg.Pool), Image: a.job.Image,
	}
	if a.job.Sandbox.Preset != "strict" {
		s.Preset = sandbox.Preset(a.job.Sandbox.Preset)
	}
	a.connect(&s)
	for _, feature := range a.job.Sandbox.AllowWeaker {
		s = s.Allow(sandbox.Feature(feature))
	}
	p := a.cfg.Policy
	if in.unjailed {
		s = s.Allow(without...)
		p.Read, p.Write = nil, nil // they are where they are
	}
	s.Args = []string{"true"} // whoever asks says what runs
	s, err := p.Apply(s, a.cfg.Where)
	if err != nil {
		return s, verdict.Failed(jobs.SandboxMissing, "apply the worker's policy", err)
	}
	if watchesDisk {
		s.Limits.Disk = cmp.Or(s.Limits.Disk, a.cfg.DiskLimit)
	}
	if a.container() {
		return s, nil // the worker's toolchains are for the host's own system
	}
	return s, in.show(&s, nil, a.cfg.Mounts)
}

// limits are those that the job asks for.
func (a *attempt) limits() sandbox.Limits {
	l := Limits(a.job.Sandbox.Limits)
	if l.Disk > l.WithDefaults().FileSize {
		l.FileSize = l.Disk // one file may be all of it
	}
	return l
}

// environment is what every program of the attempt finds besides its own
// variables. Nothing is inherited from the worker.
func (a *attempt) environment(in jail) []string {
	vars := map[string]string{
		"PATH": Path,
		"HOME": in.home, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/sh", "TERM": "dumb",
	}
	maps.Copy(vars, a.cfg.Policy.Env)
	maps.Copy(vars, a.job.Env)
	for _, name := range a.job.Secrets {
		if value, ok := a.cfg.Secret(name); ok {
			vars[name] = value
		}
	}
	var env []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// redactor removes the values of the job's secrets, and the worker's own
// keys, from everything that leaves the worker. A secret that the worker does
// not have is an error; the redactor is good all the same.
func (a *attempt) redactor() (*redact.Redactor, error) {
	var missing error
	secrets := map[string]string{}
	maps.Copy(secrets, a.cfg.Keys)
	for _, name := range a.job.Secrets {
		value, ok := a.cfg.Secret(name)
		if !ok {
			missing = verdict.Ended(jobs.SecretMissing, "the worker has no secret %s: set PENSTOCK_SECRET_%s in its environment", name, name)
			continue
		}
		secrets[name] = value
	}
	// They open a door of the worker while the attempt lasts.
	secrets[InsideVariable], secrets["MODEL_TOKEN"], secrets["PROXY_TOKEN"] = a.inside.Token(), a.tokens.model, a.tokens.network
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
		return nil, verdict.Failed(verdict.StartReason(err), "start the jail", a.diagnosed(err))
	}
	// When the lease is lost there is no time to be polite: another worker may
	// begin before a program that was asked to end has ended.
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), jobs.ErrFenced) {
			_ = p.Close(context.WithoutCancel(ctx)) // Wait reports what failed
		}
	})
	a.result.Durations.Jail += a.stage("jail", began)
	listeners := p.Listeners()
	if in.door == nil && slices.Contains(spec.Listen, in.gate) {
		listeners = listeners[1:] // the first is the gate's
	}
	if slices.Contains(spec.Listen, insideAddress) {
		listeners = listeners[:len(listeners)-1] // the last is the worker's own
	}
	a.serve(ctx, p, listeners)
	weaker := words(p.Weaker())
	for _, w := range weaker {
		if !slices.Contains(a.result.Weaker, w) {
			a.result.Weaker = append(a.result.Weaker, w)
		}
	}
	a.events.put(event.Make(event.JailStarted{Backend: in.backend.Name(), Command: spec.Args, Weaker: weaker, Watched: words(p.Watched())}))
	return p, nil
}

// diagnosed adds to an error what it comes from.
func (a *attempt) diagnosed(err error) error {
	if a.cfg.Diagnose == nil {
		return err
	}
	if cause := a.cfg.Diagnose(err); cause != "" {
		return fmt.Errorf("%w (%s)", err, cause)
	}
	return err
}

func words(features []sandbox.Feature) []string {
	var out []string
	for _, f := range features {
		out = append(out, string(f))
	}
	return out
}
