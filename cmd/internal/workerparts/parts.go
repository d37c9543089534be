// Package workerparts makes the parts of a worker from the settings: agents, workspaces,
// containers, names. Commands that look after a host need some of them, without a
// worker.
package workerparts

import (
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
	"github.com/penstock-run/penstock/sandbox/oci"
	"github.com/penstock-run/penstock/sandbox/systemd"
	"github.com/penstock-run/penstock/worker"
	"github.com/penstock-run/penstock/worker/agent"
	"github.com/penstock-run/penstock/worker/agent/builtin"
	"github.com/penstock-run/penstock/worker/agentstore"
	"github.com/penstock-run/penstock/worker/poolmark"
	"github.com/penstock-run/penstock/worker/workspace"
)

// markPool begins the mark of a pool's jails.
const markPool = "pool-"

// PoolMark distinguishes the jails of this data directory from all others on the same
// host, or at the same engine.
func PoolMark(settings *cli.Config) string {
	dir := settings.Data
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(dir))
	return markPool + hex.EncodeToString(sum[:6])
}

// Elsewhere reports whether a jail belongs to another data directory. One without
// a mark, as sandbox run makes them, belongs to none.
func Elsewhere(settings *cli.Config, label string) bool {
	_, last := path.Split(strings.ReplaceAll(label, ".", "/"))
	return strings.HasPrefix(last, markPool) && !poolmark.On(label, PoolMark(settings))
}

// Reserve is the free space that the validated settings require on the disk of a
// directory.
func Reserve(settings *cli.Config, dir string) worker.Reserve {
	r, _ := worker.ParseReserve(settings.Worker.Reserve)
	r.Dir = dir
	return r
}

// Workspaces says where workspaces are and how they are made. It does not say what
// becomes of what is in them.
func Workspaces(settings *cli.Config, jail sandbox.Backend) workspace.Config {
	cfg := workspace.Config{
		Dir: filepath.Join(settings.Data, "work"), Worktrees: WorktreeRecords(settings), Jail: jail, Pool: PoolMark(settings), FetchEnv: fetchEnv(os.Environ()),
		Strategy: workspace.Strategy(settings.Worker.Workspace),
	}
	own := &cfg.Programs
	own.Create, own.Remove, own.Time = settings.Worker.WorkspaceCreate, settings.Worker.WorkspaceRemove, settings.Worker.WorkspaceTime
	own.Env, own.Keep = cfg.FetchEnv, []string{settings.Data}
	cache, _ := jobs.ParseBytes(settings.Worker.Cache) // was validated
	cfg.Limits.BaseBytes = int64(cache)
	cfg.Limits.WorktreeAge = settings.Worker.WorktreeAge
	if cfg.Limits.WorktreeAge == 0 {
		cfg.Limits.WorktreeAge = -1
	}
	cfg.Limits.WholeAge = settings.Worker.WholeAge
	if cfg.Limits.WholeAge == 0 {
		cfg.Limits.WholeAge = -1
	}
	if _, cfg.Limits.WholeBytes = settings.Worker.DiskSizes(); cfg.Limits.WholeBytes == 0 {
		cfg.Limits.WholeBytes = -1
	}
	return cfg
}

// BestOrNil is the host's best jail, or none: then jobs say what is missing.
func BestOrNil(choose jail.Chooser) sandbox.Backend {
	backend, err := choose(backends.Auto)
	if err != nil {
		return nil
	}
	return backend
}

// Agents looks for the agents' programs where the worker's own would be.
func Agents(settings *cli.Config) *agent.Agents {
	programs := map[string]string{}
	if settings.Worker.Claude != "" {
		programs["claude"] = settings.Worker.Claude
	}
	return builtin.Agents(agent.Config{Programs: programs, Custom: settings.Agents, Path: os.Getenv("PATH"), Store: AgentStore(settings)})
}

// AgentStore has the versions of agents that are installed on this host.
func AgentStore(settings *cli.Config) *agentstore.Store {
	return agentstore.New(filepath.Join(settings.Data, "agents"))
}

// Able reports what a job asks for and its agent, or every agent, cannot do.
func Able(settings *cli.Config) func(jobs.Job) error {
	agents := Agents(settings)
	return func(j jobs.Job) error {
		if err := agents.Able(j); err != nil {
			return err
		}
		return schema.Able(j)
	}
}

// Name is the worker's name, or what this process is called without one.
func Name(settings *cli.Config) string {
	if settings.Worker.Name != "" {
		return settings.Worker.Name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}

// Slots is the default number of slots.
func Slots(asked int) int {
	if asked > 0 {
		return asked
	}
	return runtime.NumCPU()
}

// Containers is the one backend for isolation container: it remembers what it
// has tried.
func Containers(settings *cli.Config) *oci.Backend {
	return &oci.Backend{Engine: settings.Worker.Engine, Host: settings.Worker.Socket, Runtime: settings.Worker.Runtime}
}

// Keepers are the services of the host that may still hold jails of a worker that was killed:
// the engine of these containers, and systemd. Whatever ends leftovers asks all of them.
func Keepers(containers *oci.Backend) []sandbox.Keeper {
	return []sandbox.Keeper{containers, &systemd.Backend{}}
}

// WorktreeRecords is the directory that knows the worktrees of users.
func WorktreeRecords(settings *cli.Config) string { return filepath.Join(settings.Data, "worktrees") }
