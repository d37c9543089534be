package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/oci"
	"github.com/penstock-run/penstock/sandbox/systemd"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/workspace"
)

// worker puts a worker together from the settings.
func (a *app) worker(ctx context.Context, p *pool, slots int, hooks hooks) (*worker.Worker, error) {
	rules, err := jail.LoadPolicy(&a.cfg)
	if err != nil {
		return nil, err
	}
	if moved, err := backends.Delegate(ctx); err != nil || moved {
		p.logger.Debug("asked the user's service manager for control groups", "moved", moved, "err", err)
	}
	containers := a.containers()
	choose := withContainers(jail.Choose(ctx, a.cfg.Worker.Backend, rules.Backends), containers)
	where := a.spaces(orNil(choose))
	where.Salvage, where.Stored = a.salvager(p), worker.Stored(p.store)
	spaces, err := workspace.Open(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open the workspaces: %w", err)
	}
	signers, err := a.signers()
	if err != nil {
		return nil, err
	}
	program, err := jailinit.Executable()
	if err != nil {
		return nil, err
	}
	var mounts []sandbox.Mount
	for _, path := range a.cfg.Worker.ROPaths {
		mounts = append(mounts, sandbox.Mount{Source: path, Target: path})
	}
	cfg := worker.Config{
		Name: a.workerName(), Slots: slots, Queues: a.cfg.Worker.Queues, Labels: a.cfg.Worker.Labels, Drain: a.cfg.Worker.Drain,
		Queue: p.queue, Log: p.log, Store: p.store, Spaces: spaces, Workspace: a.cfg.Worker.Workspace, Agents: a.agents(),
		Pool: a.poolMark(), Backend: choose, Keepers: []sandbox.Backend{containers, &systemd.Backend{}}, Secret: a.secret, Mounts: mounts, Logger: p.logger, Hooks: hooks.worker,
		Signers: signers, Policy: rules, Where: jail.Here(), Refused: jail.Keep(jail.Violations(&a.cfg), a.err), Diagnose: jail.Advice,
		Reserve:      a.reserve(filepath.Join(a.cfg.Data, "work")),
		CommitAuthor: a.cfg.Worker.CommitAuthor, CommitPlain: !a.cfg.Worker.CommitTrailers,
		Program: program, Typed: schema.Typed,
		SetupCache: a.cfg.Worker.SetupCache, Hangs: a.cfg.Worker.Hangs(),
		Network: gate.NetworkConfig{Hosts: a.cfg.Worker.AllowHosts},
	}
	cfg.DiskLimit, _ = a.cfg.Worker.DiskSizes()
	if _, err := gate.NewNetwork(cfg.Network); err != nil {
		return nil, cli.Usage("", "worker.allow_hosts: %w", err)
	}
	if err := a.addGates(&cfg); err != nil {
		return nil, err
	}
	return worker.New(cfg), nil
}

// markPool begins the mark of a pool's jails.
const markPool = "pool-"

// poolMark distinguishes the jails of this data directory from all others on the same
// host, or at the same engine.
func (a *app) poolMark() string {
	dir := a.cfg.Data
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(dir))
	return markPool + hex.EncodeToString(sum[:6])
}

// elsewhere reports whether a jail belongs to another data directory. One without
// a mark, as sandbox run makes them, belongs to none.
func (a *app) elsewhere(label string) bool {
	_, last := path.Split(strings.ReplaceAll(label, ".", "/"))
	return strings.HasPrefix(last, markPool) && !worker.OfPool(label, a.poolMark())
}

// salvager stores the work of workers that died in the pool.
func (a *app) salvager(p *pool) func(context.Context, *workspace.Workspace) error {
	return worker.Salvage(worker.Config{Name: a.workerName(), Queue: p.queue, Log: p.log, Store: p.store})
}

// reserve is the free space that the validated settings require on the disk of a
// directory.
func (a *app) reserve(dir string) worker.Reserve {
	r, _ := worker.ParseReserve(a.cfg.Worker.Reserve)
	r.Dir = dir
	return r
}

// spaces says where workspaces are and how they are made. It does not say what
// becomes of what is in them.
func (a *app) spaces(jail sandbox.Backend) workspace.Config {
	cfg := workspace.Config{
		Dir: filepath.Join(a.cfg.Data, "work"), Worktrees: a.worktreeRecords(), Jail: jail, FetchEnv: fetchEnv(os.Environ()),
		Strategy: workspace.Strategy(a.cfg.Worker.Workspace),
	}
	own := &cfg.Programs
	own.Create, own.Remove, own.Time = a.cfg.Worker.WorkspaceCreate, a.cfg.Worker.WorkspaceRemove, a.cfg.Worker.WorkspaceTime
	own.Env, own.Keep = cfg.FetchEnv, []string{a.cfg.Data}
	cache, _ := jobs.ParseBytes(a.cfg.Worker.Cache) // was validated
	cfg.Limits.BaseBytes = int64(cache)
	cfg.Limits.WorktreeAge = a.cfg.Worker.WorktreeAge
	if cfg.Limits.WorktreeAge == 0 {
		cfg.Limits.WorktreeAge = -1
	}
	cfg.Limits.WholeAge = a.cfg.Worker.WholeAge
	if cfg.Limits.WholeAge == 0 {
		cfg.Limits.WholeAge = -1
	}
	if _, cfg.Limits.WholeBytes = a.cfg.Worker.DiskSizes(); cfg.Limits.WholeBytes == 0 {
		cfg.Limits.WholeBytes = -1
	}
	return cfg
}

// addGates opens a way to each model API that the worker has a key for.
func (a *app) addGates(cfg *worker.Config) error {
	cfg.Gates, cfg.Keys = map[string]*gate.Gate{}, map[string]string{}
	for _, api := range []struct{ name, url, variable, key string }{
		{"anthropic", a.cfg.Model.AnthropicURL, "ANTHROPIC_API_KEY", a.cfg.AnthropicKey},
		{"openai", a.cfg.Model.OpenAIURL, "OPENAI_API_KEY", a.cfg.OpenAIKey},
		{"google", a.cfg.Model.GoogleURL, "GOOGLE_API_KEY", a.cfg.GoogleKey},
	} {
		if api.key == "" {
			continue
		}
		g, err := gate.New(gate.Config{API: api.name, Upstream: api.url, Key: gate.Key(api.key)})
		if err != nil {
			return cli.Usage("see model."+api.name+"_url and "+api.variable, "model API: %w", err)
		}
		cfg.Gates[api.name], cfg.Keys[api.variable] = g, api.key
	}
	return nil
}

// orNil is the host's best jail, or none: then jobs say what is missing.
func orNil(choose jail.Chooser) sandbox.Backend {
	backend, err := choose(backends.Auto)
	if err != nil {
		return nil
	}
	return backend
}

// agents looks for the agents' programs where the worker's own would be.
func (a *app) agents() *agent.Agents {
	programs := map[string]string{}
	if a.cfg.Worker.Claude != "" {
		programs["claude"] = a.cfg.Worker.Claude
	}
	return agent.New(agent.Config{Programs: programs, Custom: a.cfg.Agents, Path: os.Getenv("PATH")})
}

// able reports what a job asks for and its agent, or every agent, cannot do.
func (a *app) able() func(jobs.Job) error {
	agents := a.agents()
	return func(j jobs.Job) error {
		if err := agents.Able(j); err != nil {
			return err
		}
		return schema.Able(j)
	}
}

func (a *app) workerName() string {
	if a.cfg.Worker.Name != "" {
		return a.cfg.Worker.Name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// slots is the default number of slots.
func slots(asked int) int {
	if asked > 0 {
		return asked
	}
	return runtime.NumCPU()
}

// containers is the one backend for isolation container: it remembers what it
// has tried.
func (a *app) containers() sandbox.Backend {
	return &oci.Backend{Engine: a.cfg.Worker.Engine, Host: a.cfg.Worker.Socket, Runtime: a.cfg.Worker.Runtime}
}

// withContainers chooses containers by their name, and leaves the rest to choose.
func withContainers(choose jail.Chooser, containers sandbox.Backend) jail.Chooser {
	return func(name string) (sandbox.Backend, error) {
		if name == containers.Name() {
			return containers, nil
		}
		return choose(name)
	}
}
