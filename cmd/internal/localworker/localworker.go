// Package localworker runs a worker in this process, made from the settings: for the
// services, and beside a command whose pool is its own.
package localworker

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/schema"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/signing"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/sandbox/jailinit"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/modelkey"
	"github.com/penstock-run/penstock/worker/workspace"
)

// A Worker is one that was made from the settings.
type Worker struct {
	*worker.Worker
	settings cli.Config // of the start
	gates    *modelkey.Gates
}

// New makes a worker of a pool from the settings.
func New(ctx context.Context, shell cli.Shell, p *pool.Pool, slots int, hooks pool.Hooks) (*Worker, error) {
	return maker{shell: shell, pool: p, hooks: hooks}.worker(ctx, slots)
}

// A maker makes a worker of a pool.
type maker struct {
	shell cli.Shell
	pool  *pool.Pool
	hooks pool.Hooks
	// attended: a person waits for the jobs, and is told at once of a key that the model
	// API refuses.
	attended bool
}

func (m maker) worker(ctx context.Context, slots int) (*Worker, error) {
	shell, p, hooks := m.shell, m.pool, m.hooks
	settings := shell.Config
	hooks = p.Tracing.Hooks(hooks)
	rules, err := jail.LoadPolicy(settings)
	if err != nil {
		return nil, err
	}
	log := p.Logger.With(servicelog.Component(servicelog.InWorker))
	if moved, err := backends.Delegate(ctx); err != nil || moved {
		log.Debug("asked the user's service manager for control groups", "moved", moved, "err", err)
	}
	containers := workerparts.Containers(settings)
	choose := withContainers(jail.Choose(ctx, settings.Worker.Backend, rules.Backends), containers)
	where := workerparts.Workspaces(settings, workerparts.BestOrNil(choose))
	where.Salvage, where.Stored = p.Salvager(workerparts.Name(settings)), worker.Stored(p.Store)
	spaces, err := workspace.Open(ctx, where)
	if err != nil {
		return nil, fmt.Errorf("open the workspaces: %w", err)
	}
	signers, err := signing.Trusted(settings)
	if err != nil {
		return nil, err
	}
	receiptKey, err := signing.ReceiptKey(settings)
	if err != nil {
		return nil, err
	}
	program, err := jailinit.Executable()
	if err != nil {
		return nil, err
	}
	var mounts []sandbox.Mount
	for _, path := range settings.Worker.ROPaths {
		mounts = append(mounts, sandbox.Mount{Source: path, Target: path})
	}
	cfg := worker.Config{
		Name: workerparts.Name(settings), Release: shell.Release, Slots: slots, Queues: settings.Worker.Queues, Labels: settings.Worker.Labels, Drain: settings.Worker.Drain,
		Queue: p.Queue, Log: p.Log, Store: p.Store, Spaces: spaces, Workspace: settings.Worker.Workspace, Agents: workerparts.Agents(settings),
		Pool: workerparts.PoolMark(settings), Backend: choose, Keepers: workerparts.Keepers(containers), Secret: shell.Secret, Mounts: mounts, Logger: log, Hooks: hooks.Worker,
		Signers: signers, ReceiptKey: receiptKey, Policy: rules, Where: jail.Here(), Refused: jail.Keep(jail.Violations(settings), func(err error) { log.Error("a refusal of a jail is not kept", "err", err) }), Diagnose: jail.Advice,
		Reserve:      workerparts.Reserve(settings, filepath.Join(settings.Data, "work")),
		CommitAuthor: settings.Worker.CommitAuthor, CommitPlain: !settings.Worker.CommitTrailers,
		Program: program, Typed: schema.Typed,
		SetupCache: settings.Worker.SetupCache, Hangs: settings.Worker.Hangs(),
		Network: gate.NetworkConfig{Hosts: settings.Worker.AllowHosts},
	}
	cfg.DiskLimit, _ = settings.Worker.DiskSizes()
	if _, err := gate.NewNetwork(cfg.Network); err != nil {
		return nil, cli.Usage("", "worker.allow_hosts: %w", err)
	}
	gates, err := openGates(settings, m.attended)
	if err != nil {
		return nil, err
	}
	cfg.Gates, cfg.Keys = gates.All(), gates.Secrets()
	return &Worker{Worker: worker.New(cfg), settings: *settings, gates: gates}, nil
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
