package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/layout"
)

func (a *app) natsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "nats", Short: "Manage the broker: its streams, credentials, and servers of a cluster"}
	cmd.AddCommand(a.natsDiff(), a.natsApply(), a.natsServer(), a.natsCredentials(), a.natsEnv())
	return cmd
}

var differenceView = cli.View[layout.Difference]{
	Header: []string{"KIND", "NAME", "FIELD", "IS", "WANTED", "WAY"},
	Row: func(d layout.Difference) []string {
		field, is := d.Field, d.Is
		if field == "" {
			is = "missing"
		}
		way := string(d.Way)
		if d.Why != "" {
			way += ": " + d.Why
		}
		return []string{d.Kind, d.Name, field, is, d.Wanted, way}
	},
	ID: func(d layout.Difference) string { return d.Name },
}

// layoutFlags are the settings that streams and buckets depend on.
func (a *app) layoutFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("layout", pflag.ContinueOnError)
	flags.IntVar(&a.cfg.Replicas, "replicas", 0, "servers of a cluster that keep each stream (default: the pool's value, or 1)")
	return cli.Settings(flags)
}

// layout is the layout that this release needs on the broker. A lease that is not set
// does not change the pool's.
func (a *app) layout(cmd *cobra.Command) layout.Config {
	keep := a.cfg.Keep
	cfg := layout.Config{
		Prefix: a.cfg.Prefix, Replicas: a.cfg.Replicas,
		Events: keep.Events, Results: keep.Results, Artifacts: keep.Artifacts, Dead: keep.Dead,
	}
	cfg.EventsBytes, cfg.ArtifactsBytes, _, _ = keep.Sizes()
	if a.cfg.Lease != cli.Defaults().Lease || cmd.Flags().Changed("lease") {
		cfg.Lease = a.cfg.Lease
	}
	return cfg
}

// broker connects to the broker without making anything on it.
func (a *app) broker(owner string, do func(p *pool.Pool) error) error {
	p, err := pool.Reach(a.shell(), owner)
	if err != nil {
		return err
	}
	return errors.Join(pool.Unreachable(do(p)), p.Close())
}

func (a *app) natsDiff() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff", Short: "Show the differences between the broker and this release's layout", Args: cobra.NoArgs,
		Long: `Diff compares the streams, buckets and consumers on the broker with those that this
release needs, field by field, and changes nothing. It ignores settings that are the
operator's choice: placement, compression, a limit in bytes.

The exit code is 0 if nothing differs and 1 if something does.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.broker("nats diff", func(p *pool.Pool) error {
				differ, err := differences(cmd.Context(), p, a.layout(cmd))
				if err != nil {
					return err
				}
				if a.format != cli.Table || len(differ) > 0 {
					if err := differenceView.List(a.out, a.format, differ); err != nil {
						return err
					}
				}
				if len(differ) > 0 {
					return cli.Fail(cli.ExitUnexpected, "penstock nats apply changes what can be changed in place", "%d differences", len(differ))
				}
				return nil
			})
		},
	}
	cmd.Flags().AddFlagSet(a.layoutFlags())
	return cmd
}

func (a *app) natsApply() *cobra.Command {
	var dry, downgrade bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "apply", Short: "Change the broker's streams to this release's layout", Args: cobra.NoArgs,
		Long: `Apply creates missing streams, buckets and consumers on the broker, changes differences
that can be changed in place, and then waits until every stream is on as many servers
as it should be. The pool may run meanwhile. Apply lists differences that cannot be
changed in place, and leaves them. It also leaves what a newer release has made, unless
--downgrade is set. Apply may be repeated; only one runs at a time.

The exit code is 0 if the broker has this release's layout, 1 if differences are left,
and 8 if the servers did not copy everything within --timeout: they continue.`,
		Example: `  penstock nats apply --dry-run
  penstock nats apply --replicas 3`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := a.layout(cmd)
			cfg.Downgrade = downgrade
			return a.broker("nats apply", func(p *pool.Pool) error {
				if dry {
					return a.planned(cmd.Context(), p, cfg)
				}
				return a.applied(cmd.Context(), p, cfg, limit)
			})
		},
	}
	cmd.Flags().AddFlagSet(a.layoutFlags())
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list what would be done")
	cmd.Flags().BoolVar(&downgrade, "downgrade", false, "also revert changes of a newer release")
	cmd.Flags().DurationVar(&limit, "timeout", 10*time.Minute, "how long to wait for the servers of a cluster to copy everything")
	return cmd
}

// compareWithin is how long a comparison waits for a stream that has no leader
// now: a cluster needs some seconds to choose one, and without most of its
// servers it never does.
const compareWithin = time.Minute

func differences(ctx context.Context, p *pool.Pool, cfg layout.Config) ([]layout.Difference, error) {
	ctx, cancel := context.WithTimeout(ctx, compareWithin)
	defer cancel()
	return layout.Diff(ctx, p.Conn, cfg)
}

func (a *app) planned(ctx context.Context, p *pool.Pool, cfg layout.Config) error {
	differ, err := differences(ctx, p, cfg)
	if err != nil {
		return err
	}
	return differenceView.List(a.out, a.format, differ)
}

func (a *app) applied(ctx context.Context, p *pool.Pool, cfg layout.Config, limit time.Duration) error {
	var done []layout.Difference
	left, err := layout.Apply(ctx, p.Conn, cfg, func(d layout.Difference) {
		done = append(done, d)
		what := ""
		if d.Field != "" {
			what = fmt.Sprintf(": %s from %s to %s", d.Field, d.Is, d.Wanted)
		}
		a.shell().Progressf("%s %s %s%s", d.Way, d.Kind, d.Name, what)
	})
	err = errors.Join(err, differenceView.List(a.out, a.format, append(done, left...)))
	if busy, ok := errors.AsType[*layout.BusyError](err); ok {
		return cli.Fail(cli.ExitUnexpected, "run it again when the other one has ended", "%w", busy)
	}
	if err != nil {
		return err
	}
	if err := a.awaitReplicas(ctx, p, cfg, limit); err != nil {
		return err
	}
	if len(left) > 0 {
		return cli.Fail(cli.ExitUnexpected, "docs/cluster.md says how a stream is moved to a new one", "%d differences are left: they cannot be changed in place", len(left))
	}
	return nil
}

// awaitReplicas waits until the servers of a cluster have copied everything.
func (a *app) awaitReplicas(ctx context.Context, p *pool.Pool, cfg layout.Config, limit time.Duration) error {
	late := cli.Fail(cli.ExitTimeout, "the servers continue; penstock nats apply waits again", "not every server has all streams after %v", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	err := layout.Await(ctx, p.Conn, cfg, func(waits []layout.Group) {
		for _, g := range waits {
			a.shell().Progressf("%s: %d of %d servers have it, waiting for %s", g.Stream, len(g.Current), g.Wanted, cmp.Or(strings.Join(g.Behind, ", "), "a leader"))
		}
	})
	if err != nil {
		return pool.Cause(ctx, err)
	}
	return nil
}

func (a *app) natsServer() *cobra.Command {
	return &cobra.Command{
		Use: "server FILE", Short: "Run a NATS server from its own configuration file", Args: cobra.ExactArgs(1),
		Long: `Server runs the NATS server that this release was tested with, with FILE as its own
configuration file: as a member of a cluster, or on the directory of an embedded broker
that has become too small. It is the same as nats-server -c FILE, and also takes the
lock on its directory, so that no two servers use it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return natsd.RunFile(cmd.Context(), args[0], a.cfg.Logger(a.err, a.cfg.Level()), func(url string) {
				a.err.Printf("penstock: NATS server at %s\n", url)
			})
		},
	}
}
