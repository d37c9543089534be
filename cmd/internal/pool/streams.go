package pool

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs/layout"
)

// LayoutFlags are the settings that streams and buckets depend on.
func LayoutFlags(shell cli.Shell) *pflag.FlagSet {
	flags := pflag.NewFlagSet("layout", pflag.ContinueOnError)
	flags.IntVar(&shell.Config.Replicas, "replicas", 0, "servers of a cluster that keep each stream (default: the pool's value, or 1)")
	return cli.Settings(flags)
}

// WantedLayout is the layout that this release needs on the broker. A lease that is not set
// does not change the pool's.
func WantedLayout(shell cli.Shell, cmd *cobra.Command) layout.Config {
	keep := shell.Config.Keep
	cfg := layout.Config{
		Prefix: shell.Config.Prefix, Replicas: shell.Config.Replicas,
		Events: keep.Events, Results: keep.Results, Artifacts: keep.Artifacts, Dead: keep.Dead, Audit: keep.Audit,
	}
	cfg.EventsBytes, cfg.ArtifactsBytes, _, _ = keep.Sizes()
	if shell.Config.Lease != cli.Defaults().Lease || cmd.Flags().Changed("lease") {
		cfg.Lease = shell.Config.Lease
	}
	return cfg
}

// AwaitReplicas waits until the servers of a cluster have copied everything.
func AwaitReplicas(ctx context.Context, shell cli.Shell, p *Pool, cfg layout.Config, limit time.Duration) error {
	late := cli.Fail(cli.ExitTimeout, "the servers continue; penstock nats apply waits again", "not every server has all streams after %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := layout.Await(ctx, p.Conn, cfg, func(waits []layout.Group) {
		for _, g := range waits {
			shell.Progressf("%s: %d of %d servers have it, waiting for %s", g.Stream, len(g.Current), g.Wanted, cmp.Or(strings.Join(g.Behind, ", "), "a leader"))
		}
	})
	if err != nil {
		return Cause(ctx, err)
	}
	return nil
}
