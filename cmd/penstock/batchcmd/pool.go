package batchcmd

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var view = cli.View[operation.Batch]{
	Header: []string{"BATCH", "JOBS", "PENDING", "DELAYED", "EXECUTING", "WAITING", "OUTCOMES", "AGE", "PAUSED"},
	Row: func(s operation.Batch) []string {
		n := func(state jobs.State) string { return strconv.Itoa(s.States[state]) }
		return []string{
			s.Batch, strconv.Itoa(s.Jobs), n(jobs.Pending), n(jobs.Delayed), n(jobs.Executing), n(jobs.Waiting), transcript.Tally(s.Outcomes),
			time.Since(s.Submitted).Truncate(time.Second).String(), holds.Words(s.Paused),
		}
	},
	ID: func(s operation.Batch) string { return s.Batch },
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the batches that the pool has jobs of", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pool.List(cmd.Context(), shell, view, func(ctx context.Context, p *pool.Pool) ([]operation.Batch, error) {
				return pool.Collect(p.Client.Batches().List(ctx))
			})
		},
	}
}

func cancel(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "cancel DIR|ID", Args: cobra.ExactArgs(1),
		Short: "Cancel the jobs of a batch, queued or running, and those that it still submits",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := results.BatchID(args[0])
			if err := jobs.CheckToken("batch", id); err != nil {
				return cli.Usage("", "%w", err)
			}
			return pool.With(cmd.Context(), shell, "read", func(p *pool.Pool) error {
				changed, err := p.Client.Batches().Cancel(cmd.Context(), id)
				if err == nil && len(changed) == 0 {
					return cli.Fail(cli.ExitNotFound, "penstock batch ls lists them", "batch %s has no jobs to cancel", id)
				}
				return errors.Join(err, jobview.Records.List(shell.Out, *shell.Format, changed))
			})
		},
	}
}
