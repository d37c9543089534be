package queuecmd

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/schedule"
)

var capView = cli.View[schedule.CapUse]{
	Header: []string{"CAP", "RUNNING", "MOST"},
	Row: func(c schedule.CapUse) []string {
		return []string{c.Key, strconv.Itoa(c.Running), strconv.Itoa(c.Most)}
	},
	ID: func(c schedule.CapUse) string { return c.Key },
}

func caps(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "caps", Short: "List the caps of the pool, and how many jobs run under each", Args: cobra.NoArgs,
		Long: `Caps lists the limits on how many jobs run at once; penstock serve --cap sets them. A
cap on each item of a kind, such as repo:*, has a row of its own, and one row for each
repository with running jobs.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pool.List(cmd.Context(), shell, capView, func(ctx context.Context, p *pool.Pool) ([]schedule.CapUse, error) { return p.Client.Queues().Caps(ctx) })
		},
	}
}
