package batchcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/chosen"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/report"
)

func status(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "status DIR", Short: "Show how far a batch has come", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withDir(args[0], func(dir *results.Dir) error {
				view := cli.View[results.Manifest]{
					Header: []string{"BATCH", "STATE", "ITEMS", "DONE", "MISSING", "OUTCOMES", "COST", "WHY"},
					Row: func(m results.Manifest) []string {
						t := m.Totals
						return []string{
							m.ID, string(m.State), strconv.Itoa(t.Items), strconv.Itoa(t.Done), strconv.Itoa(t.Missing),
							transcript.Tally(t.Outcomes), fmt.Sprintf("%.2f", t.CostUSD), m.Why,
						}
					},
					ID: func(m results.Manifest) string { return m.ID },
				}
				return view.One(shell.Out, *shell.Format, dir.Manifest())
			})
		},
	}
}

func listResults(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "results DIR", Short: "List the results of a batch; the exit code is that of the worst outcome", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withDir(args[0], func(dir *results.Dir) error {
				list, err := results.All(dir)
				if err != nil {
					return err
				}
				return errors.Join(jobview.Results.List(shell.Out, *shell.Format, list), jobview.Outcome(nil, list...))
			})
		},
	}
}

func reportOf(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "report DIR|ID", Short: "Print the report of a batch, in Markdown", Args: cobra.ExactArgs(1),
		Long: `Report prints the report of a results directory, or the one that the pool makes of a
batch: outcomes and reasons, cost, tokens, times, and where patches meet. It is data with
-o json, jsonl or yaml.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := results.Load(args[0])
			switch {
			case errors.Is(err, fs.ErrNotExist) && jobs.CheckToken("batch", args[0]) == nil:
				return poolReport(cmd.Context(), shell, args[0])
			case err != nil:
				return chosen.NoDir(err)
			}
			made, err := dir.Data()
			if err != nil {
				return err
			}
			return printReport(shell, *made, func() error { return dir.Report(shell.Out, "md") })
		},
	}
}

// poolReport prints the report that the pool makes of a batch.
func poolReport(ctx context.Context, shell cli.Shell, id string) error {
	return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
		made, err := p.Client.Batches().Report(ctx, id)
		if err != nil {
			return err
		}
		return printReport(shell, made, func() error { return made.Markdown(shell.Out, nil) })
	})
}

// printReport prints a report as data, or in Markdown.
func printReport(shell cli.Shell, made report.Report, markdown func() error) error {
	if f := *shell.Format; f == cli.Table || f == cli.IDs {
		return markdown()
	}
	return cli.View[report.Report]{}.One(shell.Out, *shell.Format, made)
}

func withDir(path string, fn func(*results.Dir) error) error {
	dir, err := results.Load(path)
	if err != nil {
		return chosen.NoDir(err)
	}
	return fn(dir)
}
