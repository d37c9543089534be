package sandboxcmd

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/sandbox/policy"
)

// kinds are the words that --kind takes.
var kinds = []string{policy.KindHost, policy.KindModel, policy.KindMCP, policy.KindRead, policy.KindWrite, policy.KindLimit, policy.KindPolicy}

func violationsCommand(shell cli.Shell) *cobra.Command {
	var q policy.Query
	var since string
	var follow bool
	cmd := &cobra.Command{
		Use:   "violations",
		Short: "List refused requests of jails, the oldest first",
		Long: `Violations lists what jails of this data directory were refused: hosts that are not on
their list, paths and settings that a policy does not permit, limits that they
reached. It does not list missing files: a program that opens a file outside of its
jail just does not find it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Since, err = input.Past(since, time.Now()); err != nil {
				return cli.Usage("", "--since: %w", err)
			}
			if follow {
				return followViolations(cmd.Context(), shell, q)
			}
			found, err := jail.Violations(shell.Config).Find(q)
			if err != nil {
				return err
			}
			return violationView.List(shell.Out, *shell.Format, found)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&since, "since", "", "only after this time (RFC 3339), or within this duration (as in 2h)")
	flags.Var(input.OneOf(&q.Kind, kinds...), "kind", "only host, model, read, write, limit or policy")
	flags.StringVar(&q.Label, "label", "", "only of the jail with this label, or of the job with this id")
	flags.BoolVarP(&follow, "follow", "f", false, "continue with new ones, until interrupted")
	return cmd
}

// followViolations writes each violation by itself, when it is there.
func followViolations(ctx context.Context, shell cli.Shell, q policy.Query) error {
	for v, err := range jail.Violations(shell.Config).Follow(ctx, q) {
		if err == nil && *shell.Format == cli.Table {
			err = shell.Out.Row(console.Span{Text: strings.Join(violationView.Row(v), "  ")})
		} else if err == nil {
			err = violationView.One(shell.Out, *shell.Format, v)
		}
		if err != nil {
			return err
		}
	}
	return cli.Fail(cli.ExitInterrupted, "", "interrupted")
}

var violationView = cli.View[policy.Violation]{
	Header: []string{"TIME", "KIND", "WHAT", "REASON", "LABEL"},
	Row: func(v policy.Violation) []string {
		return []string{v.Time.Local().Format(time.DateTime), v.Kind, v.What, v.Reason, v.Label}
	},
	ID: func(v policy.Violation) string { return v.Label },
}
