package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs/queue"
)

var deadView = cli.View[queue.DeadLetter]{
	Header: []string{"AT", "JOB", "SUBJECT", "REASON"},
	Row: func(l queue.DeadLetter) []string {
		return []string{l.At.Local().Format(time.RFC3339), l.Record.ID, l.Subject, firstLine(l.Reason)}
	},
	ID: func(l queue.DeadLetter) string { return l.Record.ID },
}

func (a *app) deadCommand() *cobra.Command {
	dead := &cobra.Command{Use: "dead", Short: "Look at what was refused or given up on"}
	dead.AddCommand(&cobra.Command{
		Use: "ls", Short: "List dead letters: rejected submissions, and jobs that nobody could run", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := a.open(cmd.Context(), "read", hooks{})
			if err != nil {
				return err
			}
			letters, err := p.queue.Dead(cmd.Context())
			if err == nil {
				err = deadView.List(a.out, a.format, letters)
			}
			return errors.Join(err, p.close())
		},
	})
	return dead
}
