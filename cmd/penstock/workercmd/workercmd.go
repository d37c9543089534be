// Package workercmd is the command worker: it claims jobs of a pool and runs them on this
// host. Its subcommands are about the workers that a pool has.
package workercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/daemon"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/worker"
)

// New returns the command worker.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Annotations: servicelog.Mark(),
		Use:         "worker",
		Short:       "Run a worker: claim jobs, run their agents in jails, store their results; list and drain workers",
		Long: `Worker claims jobs from the pool of --server, or of the data directory, until it
is stopped, or has done --max-jobs, or had none for --idle-timeout. On SIGTERM it
claims no more jobs, lets running jobs finish for up to --drain, and returns the rest to
the queue; a second signal ends it at once. SIGHUP does the same if the worker runs in a
terminal; otherwise it reloads the settings, the keys of model APIs too.

The subcommands list the workers of a pool, drain them and resume them, from anywhere.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return work(cmd.Context(), shell) },
	}
	c := &shell.Config.Worker
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	flags.StringVar(&c.Name, "name", "", "the worker's name (default: host and process)")
	flags.IntVar(&c.Slots, "slots", 0, "jobs at once (default: one per processor)")
	flags.StringSliceVar(&c.Queues, "queues", c.Queues, "queues to serve")
	flags.StringSliceVar(&c.Labels, "labels", nil, "labels of the worker that jobs may need: docker, gpu, …")
	flags.Var(input.OneOf(&c.Backend, jail.BackendNames()...), "backend", "jail for jobs that do not name one")
	flags.Var(input.OneOf(&c.Workspace, "auto", "overlay", "clone", "linked", "hook"), "workspace", "how to make workspaces: auto, overlay, clone, linked (a worktree of your repository) or hook (your own programs)")
	flags.DurationVar(&c.SetupCache, "setup-cache", c.SetupCache, "how long jobs share the output of the same setup; 0 runs it for each job")
	flags.StringVar(&c.CommitAuthor, "commit-author", "", `"Name <address>" of delivered commits (default: the author that the agent set)`)
	flags.BoolVar(&c.CommitTrailers, "commit-trailers", c.CommitTrailers, "append job and session to the messages of delivered commits")
	flags.DurationVar(&c.Drain, "drain", c.Drain, "how long running jobs may continue after SIGTERM")
	flags.IntVar(&c.MaxJobs, "max-jobs", 0, "end when this many jobs are done (default: any number)")
	flags.DurationVar(&c.IdleTimeout, "idle-timeout", 0, "end after this long without a job (default: never)")
	flags.StringVar(&c.Admin, "admin", c.Admin, "address of /metrics, /livez and /readyz; empty for none")
	flags.BoolVar(&c.Pprof, "pprof", false, "profiles of the process at /debug/pprof/ of --admin, which must be an address of loopback")
	flags.StringVar(&c.Reserve, "reserve", "", "free space on the disk of --data below which the worker claims no jobs: a size, a percentage, or 0 (default: 5%, at most 1GiB)")
	flags.StringSliceVar(&c.RequireSignature, "require-signature", nil, "file with public keys (PEM), one of which must have signed each job (repeatable)")
	flags.StringSliceVar(&c.ROPaths, "ro-path", nil, "host directory that every jail sees read-only (repeatable)")
	cmd.Flags().AddFlagSet(cli.Settings(flags))
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	cmd.AddCommand(ls(shell), get(shell), drain(shell), resume(shell))
	return cmd
}

func work(ctx context.Context, shell cli.Shell) error {
	n := workerparts.Slots(shell.Config.Worker.Slots)
	reloader := daemon.NewReloader(shell)
	monitor := daemon.NewMonitor(shell, daemon.Worker, n)
	admin, err := daemon.ListenAdmin(shell.Config.Worker.Admin, cli.Defaults().Worker.Admin)
	if err == nil && shell.Config.Worker.Pprof {
		err = monitor.ShowProfiles(admin)
	}
	if err != nil {
		return err
	}
	p, err := pool.OpenPatiently(ctx, shell, "worker", monitor.Hooks())
	if err != nil {
		return err
	}
	ctx = p.WhileAccepted(ctx)
	ctx, end := context.WithCancel(ctx)
	defer end()
	name := workerparts.Name(shell.Config)
	hooks := monitor.Hooks().WhenPresent(func() {
		daemon.Ready(shell, admin, servicelog.Notice{
			Text: fmt.Sprintf("worker %s with %d slots on %s", name, n, p.Broker()), Message: "claiming jobs",
			Attrs: []slog.Attr{slog.String("worker", name), slog.Int("slots", n), slog.String("broker", p.Broker()), slog.String("data", shell.Config.Data)},
		})
	})
	w, err := localworker.New(ctx, shell, p, n, hooks)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	reloader.Keys = monitor.PrepareKeys(w.PrepareKeys)
	w.EndAfter(worker.Lifetime{Jobs: shell.Config.Worker.MaxJobs, Idle: shell.Config.Worker.IdleTimeout})
	run := func(ctx context.Context) error {
		defer end() // by itself, too: the rest ends with it
		return w.Run(ctx)
	}
	return errors.Join(monitor.Run(ctx, p, admin, run, reloader.Service(p)), pool.Refused(ctx))
}
