package main

import (
	"context"
	"errors"
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the dispatcher, with a broker of its own unless --server names one",
		Long: `Serve runs the dispatcher: it accepts jobs from the bus, schedules them, and serves
metrics. Without --server it opens the data directory's own broker on a loopback
address, with credentials that it generates; other commands on the same data directory
find both automatically. With --slots N it also runs a worker with N slots.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context()) },
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.StringVar(&a.cfg.Serve.Listen, "listen", a.cfg.Serve.Listen, "address of the embedded broker; any other than loopback needs TLS")
	flags.StringVar(&a.cfg.Serve.TLSCert, "tls-cert", "", "certificate of the embedded broker (PEM)")
	flags.StringVar(&a.cfg.Serve.TLSKey, "tls-key", "", "its key (PEM)")
	flags.StringVar(&a.cfg.Serve.TLSClientCA, "tls-client-ca", "", "accept only clients with a certificate of these authorities (PEM)")
	flags.StringVar(&a.cfg.Serve.Admin, "admin", a.cfg.Serve.Admin, "address of /metrics, /livez and /readyz; empty for none")
	flags.IntVar(&a.cfg.Serve.Slots, "slots", 0, "slots of a worker in this process; 0 for none")
	flags.StringArrayVar(&a.cfg.Serve.Caps, "cap", nil, "limit on running jobs with a common property in the whole pool: repo:*=2, agent:claude=8 (repeatable)")
	flags.DurationVar(&a.cfg.Worker.Drain, "drain", a.cfg.Worker.Drain, "how long running jobs may continue after SIGTERM")
	flags.StringVar(&a.cfg.Worker.Reserve, "reserve", "", "free space on the disk of --data below which this worker claims no jobs: a size, a percentage, or 0 (default: 5%, at most 1GiB)")
	flags.StringSliceVar(&a.cfg.Worker.Queues, "queues", a.cfg.Worker.Queues, "queues that this worker serves")
	flags.StringSliceVar(&a.cfg.Worker.Labels, "labels", nil, "labels of this worker that jobs may need: docker, gpu, …")
	flags.StringSliceVar(&a.cfg.Worker.RequireSignature, "require-signature", nil, "file with public keys (PEM), one of which must have signed each job of this worker (repeatable)")
	keep := &a.cfg.Keep
	flags.DurationVar(&keep.Jobs, "keep-jobs", keep.Jobs, "how long finished jobs and their keys are kept")
	flags.DurationVar(&keep.Events, "keep-events", keep.Events, "how long sessions' events are kept")
	flags.DurationVar(&keep.Results, "keep-results", keep.Results, "how long results are kept")
	flags.DurationVar(&keep.Artifacts, "keep-artifacts", keep.Artifacts, "how long patches and other artifacts are kept, including salvages")
	flags.DurationVar(&keep.Dead, "keep-dead-letters", keep.Dead, "how long dead letters are kept")
	cmd.Flags().AddFlagSet(cli.Settings(flags))
	cmd.Flags().AddFlagSet(pool.LayoutFlags(a.shell()))
	cmd.Flags().AddFlagSet(jail.PolicyFlag(&a.cfg))
	return cmd
}

func (a *app) serve(ctx context.Context) error {
	hups := a.hangups()
	watch := a.newWatchers("dispatcher", a.cfg.Serve.Slots)
	admin, err := listenAdmin(a.cfg.Serve.Admin, cli.Defaults().Serve.Admin)
	if err != nil {
		return err
	}
	p, err := pool.OpenPatiently(ctx, a.shell(), "serve", watch.hooks())
	if err != nil {
		return err
	}
	if p.Owner != "" {
		return errors.Join(p.Close(), cli.Fail(cli.ExitUnexpected, "use it, or another --data",
			"data directory %s is in use by penstock %s", a.cfg.Data, p.Owner))
	}
	p.Answer(ctx)
	services := []func(context.Context) error{p.Answering, p.Dispatcher.Run}
	if a.cfg.Serve.Slots > 0 {
		w, err := a.worker(ctx, p, a.cfg.Serve.Slots, watch.hooks())
		if err != nil {
			return errors.Join(err, p.Close())
		}
		services = append(services, w.Run)
	}
	services = append(services, a.reloads(p, hups))
	a.sayWhere(p, admin)
	return watch.around(ctx, p, admin, services...)
}

// sayWhere reports to people, and to scripts that wait for it, that the pool is ready.
func (a *app) sayWhere(p *pool.Pool, admin net.Listener) {
	a.err.Printf("penstock: serving %s", p.Address(a.cfg))
	if a.cfg.Serve.Slots > 0 {
		a.err.Printf(", %d slots", a.cfg.Serve.Slots)
	}
	sayAdmin(a.err, admin)
}

func sayAdmin(w *console.Writer, admin net.Listener) {
	if admin != nil {
		w.Printf(", metrics at http://%s/metrics", admin.Addr())
	}
	w.Printf("\n")
}

func (a *app) workerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run a worker: claim jobs, run their agents in jails, store their results",
		Long: `Worker claims jobs from the pool of --server, or of the data directory, until it
is stopped. On SIGTERM it claims no more jobs, lets running jobs finish for up to
--drain, and returns the rest to the queue; a second signal ends it at once. SIGHUP
does the same if the worker runs in a terminal; otherwise it reloads the settings.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.work(cmd.Context()) },
	}
	c := &a.cfg.Worker
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
	flags.StringVar(&c.Admin, "admin", c.Admin, "address of /metrics, /livez and /readyz; empty for none")
	flags.StringVar(&c.Reserve, "reserve", "", "free space on the disk of --data below which the worker claims no jobs: a size, a percentage, or 0 (default: 5%, at most 1GiB)")
	flags.StringSliceVar(&c.RequireSignature, "require-signature", nil, "file with public keys (PEM), one of which must have signed each job (repeatable)")
	flags.StringSliceVar(&c.ROPaths, "ro-path", nil, "host directory that every jail sees read-only (repeatable)")
	cmd.Flags().AddFlagSet(cli.Settings(flags))
	cmd.Flags().AddFlagSet(jail.PolicyFlag(&a.cfg))
	return cmd
}

func (a *app) work(ctx context.Context) error {
	n := workerparts.Slots(a.cfg.Worker.Slots)
	hups := a.hangups()
	watch := a.newWatchers("worker", n)
	admin, err := listenAdmin(a.cfg.Worker.Admin, cli.Defaults().Worker.Admin)
	if err != nil {
		return err
	}
	p, err := pool.OpenPatiently(ctx, a.shell(), "worker", watch.hooks())
	if err != nil {
		return err
	}
	ctx = p.WhileAccepted(ctx)
	w, err := a.worker(ctx, p, n, watch.hooks())
	if err != nil {
		return errors.Join(err, p.Close())
	}
	a.err.Printf("penstock: worker %s with %d slots on %s", workerparts.Name(&a.cfg), n, p.Address(a.cfg))
	sayAdmin(a.err, admin)
	return errors.Join(watch.around(ctx, p, admin, w.Run, a.reloads(p, hups)), pool.Refused(ctx))
}
