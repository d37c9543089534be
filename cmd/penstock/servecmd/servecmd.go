// Package servecmd is the command serve: the dispatcher, and with it a broker and a
// worker where they are asked for.
package servecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/daemon"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
)

// New returns the command serve.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Annotations: servicelog.Mark(),
		Use:         "serve",
		Short:       "Run the dispatcher, with a broker of its own unless --server names one",
		Long: `Serve runs the dispatcher: it accepts jobs from the bus and over HTTP, schedules them,
and serves metrics. Without --server it opens the data directory's own broker on a
loopback address, with credentials that it generates; other commands on the same data
directory find both automatically. HTTP wants the token that the data directory has in
http-token; it has a dashboard for browsers, too. With --slots N it also runs a worker with N slots.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), shell) },
	}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c, w, keep := &shell.Config.Serve, &shell.Config.Worker, &shell.Config.Keep
	flags.StringVar(&c.Listen, "listen", c.Listen, "address of the embedded broker; any other than loopback needs TLS")
	flags.StringVar(&c.TLSCert, "tls-cert", "", "certificate of the embedded broker (PEM)")
	flags.StringVar(&c.TLSKey, "tls-key", "", "its key (PEM)")
	flags.StringVar(&c.TLSClientCA, "tls-client-ca", "", "accept only clients with a certificate of these authorities (PEM)")
	flags.StringVar(&c.Admin, "admin", c.Admin, "address of /metrics, /livez and /readyz; empty for none")
	flags.BoolVar(&c.Pprof, "pprof", false, "profiles of the process at /debug/pprof/ of --admin, which must be an address of loopback")
	flags.StringVar(&c.HTTP, "http", c.HTTP, "address of the HTTP API; any other than loopback needs TLS; empty for none")
	flags.StringSliceVar(&c.HTTPHosts, "http-host", nil, "name by which clients reach the HTTP API, besides localhost and its address (repeatable)")
	flags.StringVar(&c.HTTPTLSClientCA, "http-tls-client-ca", "", "authorities whose certificates identify clients of the HTTP API, by their common names (PEM)")
	flags.StringVar(&c.HTTPProxyHeader, "http-proxy-header", "", "header in which a proxy names the user whose request it passes on")
	flags.StringSliceVar(&c.HTTPProxyFrom, "http-proxy-from", nil, "address or network of that proxy (repeatable)")
	flags.StringSliceVar(&c.HTTPClients, "http-client", nil, "role of a name from a certificate or a proxy: NAME=ROLE, *=ROLE for all others (repeatable)")
	flags.Float64Var(&c.HTTPRate, "http-rate", c.HTTPRate, "requests a second that one credential may make over HTTP, in bursts of twice as many; 0: any number")
	flags.StringVar(&c.HTTPTLSCert, "http-tls-cert", "", "certificate of the HTTP API (PEM); read again when it has changed")
	flags.StringVar(&c.HTTPTLSKey, "http-tls-key", "", "its key (PEM)")
	flags.BoolVar(&c.UIReadOnly, "ui-read-only", false, "pages of the dashboard have no actions, whoever looks at them")
	flags.StringSliceVar(&c.MCPAllow, "mcp-allow", c.MCPAllow, "what models may do at /mcp besides reading, as far as the roles of their tokens go: submit, answer, retry, cancel")
	flags.IntVar(&c.MCPTotalJobs, "mcp-total-jobs", 0, "jobs that the models of one token may submit at /mcp until serve ends; 0 for any number")
	flags.Float64Var(&c.MCPTotalCost, "mcp-total-cost", 0, "US dollars that these may cost together; each job needs a budget then")
	flags.IntVar(&c.Slots, "slots", 0, "slots of a worker in this process; 0 for none")
	flags.StringArrayVar(&c.Budgets, "budget", nil, "what jobs with something in common may cost in an hour, day or month: queue:default=50/day, key:anthropic=300/month, pool=2000000tokens/hour (repeatable)")
	flags.StringArrayVar(&c.Quotas, "quota", nil, "limit on open jobs with a common property, or on what is stored of them, beyond which new ones are refused: label:owner=*=1000, label:owner=*=20GiB (repeatable)")
	flags.StringArrayVar(&c.Caps, "cap", nil, "limit on running jobs with a common property in the whole pool: repo:*=2, agent:claude=8 (repeatable)")
	flags.IntVar(&c.MaxDepth, "max-depth", c.MaxDepth, "how many generations of children a job may have; 0 allows none")
	flags.DurationVar(&w.Drain, "drain", w.Drain, "how long running jobs may continue after SIGTERM")
	flags.StringVar(&w.Reserve, "reserve", "", "free space on the disk of --data below which this worker claims no jobs: a size, a percentage, or 0 (default: 5%, at most 1GiB)")
	flags.StringSliceVar(&w.Queues, "queues", w.Queues, "queues that this worker serves")
	flags.StringSliceVar(&w.Labels, "labels", nil, "labels of this worker that jobs may need: docker, gpu, …")
	flags.StringSliceVar(&w.RequireSignature, "require-signature", nil, "file with public keys (PEM), one of which must have signed each job of this worker (repeatable)")
	flags.DurationVar(&keep.Jobs, "keep-jobs", keep.Jobs, "how long finished jobs and their keys are kept")
	flags.StringArrayVar(&keep.Rules, "keep", nil, "shorter time for finished jobs with a common property: queue:nightly=7d, label:owner=ann=24h (repeatable)")
	flags.DurationVar(&keep.Events, "keep-events", keep.Events, "how long sessions' events are kept")
	flags.DurationVar(&keep.Results, "keep-results", keep.Results, "how long results are kept")
	flags.DurationVar(&keep.Artifacts, "keep-artifacts", keep.Artifacts, "how long patches and other artifacts are kept, including salvages")
	flags.DurationVar(&keep.Audit, "keep-audit", keep.Audit, "how long the audit log keeps who asked for which change")
	flags.DurationVar(&keep.Dead, "keep-dead-letters", keep.Dead, "how long dead letters are kept")
	cmd.Flags().AddFlagSet(cli.Settings(flags))
	cmd.Flags().AddFlagSet(pool.LayoutFlags(shell))
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	return cmd
}

func serve(ctx context.Context, shell cli.Shell) error {
	reloader := daemon.NewReloader(shell)
	monitor := daemon.NewMonitor(shell, daemon.Dispatcher, shell.Config.Serve.Slots)
	admin, err := daemon.ListenAdmin(shell.Config.Serve.Admin, cli.Defaults().Serve.Admin)
	if err == nil && shell.Config.Serve.Pprof {
		err = monitor.ShowProfiles(admin)
	}
	if err != nil {
		return err
	}
	if err := checkModels(shell.Config.Serve); err != nil {
		return err
	}
	web, err := listenHTTP(shell.Config.Serve)
	if err != nil {
		return err
	}
	if web == nil && len(shell.Config.Hooks) > 0 {
		return cli.Usage("name an address with --http, or remove them", "the settings have hooks, and HTTP is not served")
	}
	p, err := pool.OpenPatiently(ctx, shell, "serve", monitor.Hooks())
	if err != nil {
		return err
	}
	if p.Owner != "" {
		return errors.Join(p.Close(), cli.Fail(cli.ExitUnexpected, "use it, or another --data",
			"data directory %s is in use by penstock %s", shell.Config.Data, p.Owner))
	}
	p.Answer(ctx)
	services := []func(context.Context) error{p.Answering, p.Dispatcher.Run}
	ready := func() { sayWhere(shell, p, web, admin) }
	if shell.Config.Serve.Slots > 0 {
		w, err := localworker.New(ctx, shell, p, shell.Config.Serve.Slots, monitor.Hooks().WhenPresent(ready))
		if err != nil {
			return errors.Join(err, p.Close())
		}
		reloader.Keys = monitor.PrepareKeys(w.PrepareKeys)
		services = append(services, w.Run)
	}
	if web != nil {
		service, err := serveHTTP(ctx, shell, p, web, monitor.HTTPHooks())
		if err != nil {
			return errors.Join(err, p.Close())
		}
		services = append(services, service)
	}
	services = append(services, reloader.Service(p))
	if shell.Config.Serve.Slots == 0 {
		ready()
	}
	return monitor.Run(ctx, p, admin, services...)
}

// sayWhere reports to people, and to scripts that wait for it, that the pool is ready.
func sayWhere(shell cli.Shell, p *pool.Pool, web *httpListener, admin net.Listener) {
	text, attrs := "serving "+p.Broker(), []slog.Attr{slog.String("broker", p.Broker()), slog.String("data", shell.Config.Data)}
	if p.Own() {
		text = "serving " + shell.Config.Data + " at " + p.Broker()
	}
	if slots := shell.Config.Serve.Slots; slots > 0 {
		text += fmt.Sprintf(", %d slots", slots)
		attrs = append(attrs, slog.Int("slots", slots), slog.String("worker", workerparts.Name(shell.Config)))
	}
	if web != nil {
		text += ", HTTP at " + web.url()
		attrs = append(attrs, slog.String("http", web.url()))
	}
	daemon.Ready(shell, admin, servicelog.Notice{Text: text, Message: "serving", Attrs: attrs})
}
