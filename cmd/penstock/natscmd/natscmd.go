// Package natscmd manages the broker of a pool: its streams, its credentials, and the
// servers of a cluster.
package natscmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/servicelog"
	"github.com/penstock-run/penstock/cmd/penstock/backupcmd"
	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/layout"
)

// New returns the command nats.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{Use: "nats", Short: "Manage the broker: its streams, credentials, and servers of a cluster"}
	cmd.AddCommand(diff(shell), apply(shell), server(shell), credentials(shell), environment(shell), backupcmd.NewCompact(shell))
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

// broker connects to the broker without making anything on it.
func broker(shell cli.Shell, owner string, do func(p *pool.Pool) error) error {
	p, err := pool.Reach(shell, owner)
	if err != nil {
		return err
	}
	return errors.Join(pool.Unreachable(do(p)), p.Close())
}

func diff(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff", Short: "Show the differences between the broker and this release's layout", Args: cobra.NoArgs,
		Long: `Diff compares the streams, buckets and consumers on the broker with those that this
release needs, field by field, and changes nothing. It ignores settings that are the
operator's choice: placement, compression, a limit in bytes.

The exit code is 0 if nothing differs and 1 if something does.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return broker(shell, "nats diff", func(p *pool.Pool) error {
				differ, err := differences(cmd.Context(), p, pool.WantedLayout(shell, cmd))
				if err != nil {
					return err
				}
				if *shell.Format != cli.Table || len(differ) > 0 {
					if err := differenceView.List(shell.Out, *shell.Format, differ); err != nil {
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
	cmd.Flags().AddFlagSet(pool.LayoutFlags(shell))
	return cmd
}

func apply(shell cli.Shell) *cobra.Command {
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
			cfg := pool.WantedLayout(shell, cmd)
			cfg.Downgrade = downgrade
			return broker(shell, "nats apply", func(p *pool.Pool) error {
				if dry {
					return planned(cmd.Context(), shell, p, cfg)
				}
				return applied(cmd.Context(), shell, p, cfg, limit)
			})
		},
	}
	cmd.Flags().AddFlagSet(pool.LayoutFlags(shell))
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

func planned(ctx context.Context, shell cli.Shell, p *pool.Pool, cfg layout.Config) error {
	differ, err := differences(ctx, p, cfg)
	if err != nil {
		return err
	}
	return differenceView.List(shell.Out, *shell.Format, differ)
}

func applied(ctx context.Context, shell cli.Shell, p *pool.Pool, cfg layout.Config, limit time.Duration) error {
	var done []layout.Difference
	left, err := layout.Apply(ctx, p.Conn, cfg, func(d layout.Difference) {
		done = append(done, d)
		what := ""
		if d.Field != "" {
			what = fmt.Sprintf(": %s from %s to %s", d.Field, d.Is, d.Wanted)
		}
		shell.Progressf("%s %s %s%s", d.Way, d.Kind, d.Name, what)
	})
	err = errors.Join(err, differenceView.List(shell.Out, *shell.Format, append(done, left...)))
	if busy, ok := errors.AsType[*layout.BusyError](err); ok {
		return cli.Fail(cli.ExitUnexpected, "run it again when the other one has ended", "%w", busy)
	}
	if err != nil {
		return err
	}
	if err := pool.AwaitReplicas(ctx, shell, p, cfg, limit); err != nil {
		return err
	}
	if len(left) > 0 {
		return cli.Fail(cli.ExitUnexpected, "docs/how-to/cluster.md says how a stream is moved to a new one", "%d differences are left: they cannot be changed in place", len(left))
	}
	return nil
}

func server(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Annotations: servicelog.Mark(),
		Use:         "server FILE", Short: "Run a NATS server from its own configuration file", Args: cobra.ExactArgs(1),
		Long: `Server runs the NATS server that this release was tested with, with FILE as its own
configuration file: as a member of a cluster, or on the directory of an embedded broker
that has become too small. It is the same as nats-server -c FILE, and also takes the
lock on its directory, so that no two servers use it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			log := shell.Config.Logger(shell.Err, shell.Config.Level()).With(servicelog.Component(servicelog.InBroker))
			return natsd.RunFile(cmd.Context(), args[0], log, func(url string) {
				servicelog.Say(shell, servicelog.Notice{Level: slog.LevelInfo, Text: "NATS server at " + url, Message: "serving", Attrs: []slog.Attr{
					slog.String("broker", url), slog.String("version", shell.Release), slog.Int("pid", os.Getpid()),
				}})
			})
		},
	}
}
