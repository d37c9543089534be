// Package auditcmd is the command audit: who asked for which change.
package auditcmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var view = cli.View[operation.AuditEntry]{
	Header: []string{"AT", "WHO", "ROLE", "VIA", "OPERATION", "ABOUT", "OUTCOME"},
	Row: func(e operation.AuditEntry) []string {
		return []string{e.At.Local().Format(time.RFC3339), e.Who, string(e.Role), e.Via, e.Operation, e.About, e.Outcome}
	},
	ID: func(e operation.AuditEntry) string { return e.About },
}

// New returns the command audit.
func New(shell cli.Shell) *cobra.Command {
	var r operation.AuditRequest
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Show who asked for which change, and what came of it", Args: cobra.NoArgs,
		Long: `Audit shows the changes that were asked for, the oldest first: of jobs, batches, queues,
schedules, dead letters and tokens, also those that were refused. WHO is the name of the
token that a request over HTTP had, or what a program on the bus calls itself.`,
		Example: `  penstock audit --since 1d
  penstock audit --who ci --operation cancel -o jsonl
  penstock audit --since 0s --follow`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if since != "" {
				at, err := input.Past(since, time.Now())
				if err != nil {
					return cli.Usage("", "--since: %w", err)
				}
				r.Since = &at
			}
			return show(cmd.Context(), shell, r, follow)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only those since a time, or so long ago: 2h, 7d, 2027-01-02T15:04:05Z")
	flags.StringVar(&r.Who, "who", "", "only those of this token or program")
	flags.StringVar(&r.Operation, "operation", "", "only those of this operation: submit, cancel, token-add, …")
	flags.StringVar(&r.About, "about", "", "only those about the thing with this id or name")
	flags.BoolVar(&follow, "follow", false, "go on with those that come, until interrupted")
	return cmd
}

func show(ctx context.Context, shell cli.Shell, r operation.AuditRequest, follow bool) error {
	p, err := pool.Open(ctx, shell, "read", pool.Hooks{})
	if err != nil {
		return err
	}
	if follow {
		r.For = jobs.Duration(operation.MaxWait)
		for e, asked := range p.Client.Audit(ctx, r) {
			if err = asked; err == nil {
				err = view.One(shell.Out, *shell.Format, e)
			}
			if err != nil {
				break
			}
		}
		if ctx.Err() != nil {
			err = cli.Fail(cli.ExitInterrupted, "", "interrupted")
		}
		return errors.Join(err, p.Close())
	}
	list, err := pool.Collect(p.Client.Audit(ctx, r))
	if err == nil {
		err = view.List(shell.Out, *shell.Format, list)
	}
	return errors.Join(err, p.Close())
}
