package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/backends"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/gate"
	"github.com/penstock-run/penstock/worker/workspace"
)

// worker puts a worker together from the settings.
func (a *app) worker(ctx context.Context, p *pool, slots int, hooks hooks) (*worker.Worker, error) {
	choose := backendChooser(ctx, a.cfg.Worker.Backend)
	spaces, err := workspace.Open(ctx, workspace.Config{
		Dir: filepath.Join(a.cfg.Data, "work"), Jail: orNil(choose), FetchEnv: fetchEnv(),
	})
	if err != nil {
		return nil, fmt.Errorf("open the workspaces: %w", err)
	}
	var mounts []sandbox.Mount
	for _, path := range a.cfg.Worker.ROPaths {
		mounts = append(mounts, sandbox.Mount{Source: path, Target: path})
	}
	cfg := worker.Config{
		Name: a.workerName(), Slots: slots, Queues: a.cfg.Worker.Queues, Drain: a.cfg.Worker.Drain,
		Queue: p.queue, Log: p.log, Store: p.store, Spaces: spaces, Agents: a.agents(),
		Backend: choose, Secret: secret, Mounts: mounts, Logger: p.logger, Hooks: hooks.worker,
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
func orNil(choose func(string) (sandbox.Backend, error)) sandbox.Backend {
	backend, err := choose(backends.Auto)
	if err != nil {
		return nil
	}
	return backend
}

// fetchEnv is what git may know of the worker when it fetches a repository:
// where the user's keys and credential helpers are.
func fetchEnv() []string {
	var env []string
	for _, name := range []string{"HOME", "PATH", "SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "XDG_CONFIG_HOME", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// agents looks for the agents' programs where the worker's own would be.
func (a *app) agents() *agent.Agents {
	programs := map[string]string{}
	if a.cfg.Worker.Claude != "" {
		programs["claude"] = a.cfg.Worker.Claude
	}
	return agent.New(agent.Config{Programs: programs, Path: os.Getenv("PATH")})
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

// slots is how many jobs run at once where nobody said.
func slots(asked int) int {
	if asked > 0 {
		return asked
	}
	return runtime.NumCPU()
}

// secret reads a secret that a job names from the worker's environment.
func secret(name string) (string, bool) { return os.LookupEnv(cli.EnvPrefix + "SECRET_" + name) }

// backendChooser returns the jail by its name. What "auto" means is found out
// once, by trying.
func backendChooser(ctx context.Context, preferred string) func(string) (sandbox.Backend, error) {
	auto := sync.OnceValues(func() (sandbox.Backend, error) { return backends.New(ctx, preferred) })
	return func(name string) (sandbox.Backend, error) {
		if name == "" || name == "auto" {
			return auto()
		}
		return backends.New(ctx, strings.ToLower(name))
	}
}
