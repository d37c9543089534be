package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/sandbox/systemd"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/workspace"
)

// worker puts a worker together from the settings.
func (a *app) worker(ctx context.Context, p *pool.Pool, slots int, hooks pool.Hooks) (*worker.Worker, error) {
	rules, err := jail.LoadPolicy(&a.cfg)
	if err != nil {
		return nil, err
	}
	if moved, err := backends.Delegate(ctx); err != nil || moved {
		p.Logger.Debug("asked the user's service manager for control groups", "moved", moved, "err", err)
	}
	containers := workerparts.Containers(&a.cfg)
	choose := withContainers(jail.Choose(ctx, a.cfg.Worker.Backend, rules.Backends), containers)
	where := workerparts.Workspaces(&a.cfg, workerparts.BestOrNil(choose))
	where.Salvage, where.Stored = p.Salvager(workerparts.Name(&a.cfg)), worker.Stored(p.Store)
	spaces, err := workspace.Open(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open the workspaces: %w", err)
	}
	signers, err := signing.Trusted(&a.cfg)
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
		Name: workerparts.Name(&a.cfg), Slots: slots, Queues: a.cfg.Worker.Queues, Labels: a.cfg.Worker.Labels, Drain: a.cfg.Worker.Drain,
		Queue: p.Queue, Log: p.Log, Store: p.Store, Spaces: spaces, Workspace: a.cfg.Worker.Workspace, Agents: workerparts.Agents(&a.cfg),
		Pool: workerparts.PoolMark(&a.cfg), Backend: choose, Keepers: []sandbox.Backend{containers, &systemd.Backend{}}, Secret: a.secret, Mounts: mounts, Logger: p.Logger, Hooks: hooks.Worker,
		Signers: signers, Policy: rules, Where: jail.Here(), Refused: jail.Keep(jail.Violations(&a.cfg), a.err), Diagnose: jail.Advice,
		Reserve:      workerparts.Reserve(&a.cfg, filepath.Join(a.cfg.Data, "work")),
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

// withContainers chooses containers by their name, and leaves the rest to choose.
func withContainers(choose jail.Chooser, containers sandbox.Backend) jail.Chooser {
	return func(name string) (sandbox.Backend, error) {
		if name == containers.Name() {
			return containers, nil
		}
		return choose(name)
	}
}
