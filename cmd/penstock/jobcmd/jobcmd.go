// Package jobcmd is the command job, and the commands about one job that stand beside it:
// answer, attach, logs, send, submit, wait, watch and why.
package jobcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/penstock/worktreecmd"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/worker/checkout"
)

// New returns the command job.
func New(shell cli.Shell) *cobra.Command {
	job := &cobra.Command{Use: "job", Short: "Show and control jobs"}
	job.AddCommand(ls(shell), get(shell), events(shell),
		cancel(shell), retry(shell), resume(shell), fork(shell), purge(shell),
		interrupt(shell), stop(shell), set(shell), rawLine(shell),
		diff(shell), apply(shell), artifacts(shell), salvageCommand(shell), worktreecmd.New(shell))
	return job
}

func events(shell cli.Shell) *cobra.Command {
	cmd := NewLogs(shell)
	cmd.Use, cmd.Short = "events ID", "Print the events of a job's session; the same as penstock logs"
	return cmd
}

func get(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Aliases: []string{"show"}, Args: cobra.ExactArgs(1),
		Short: "Show a job: its record, what its reason means, its request and its result",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				view, err := p.Client.Show(ctx, rec.ID)
				if err != nil {
					return err
				}
				if *shell.Format == cli.Table {
					*shell.Format = cli.YAML
				}
				return cli.View[operation.Shown]{ID: func(v operation.Shown) string { return v.ID }}.One(shell.Out, *shell.Format, view)
			})
		},
	}
}

func cancel(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID…", Short: "Cancel jobs, queued or running", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return each(cmd.Context(), shell, args, func(ctx context.Context, p *pool.Pool, rec jobs.Record) (jobs.Record, error) {
				return p.Client.Cancel(ctx, rec.ID)
			})
		},
	}
}

func retry(shell cli.Shell) *cobra.Command {
	var fromSalvage bool
	cmd := &cobra.Command{
		Use: "retry ID…", Short: "Run finished jobs without success again", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return each(cmd.Context(), shell, args, func(ctx context.Context, p *pool.Pool, rec jobs.Record) (jobs.Record, error) {
				return p.Client.Retry(ctx, rec.ID, fromSalvage)
			})
		},
	}
	cmd.Flags().BoolVar(&fromSalvage, "from-salvage", false, "begin from the last saved changes of an earlier attempt")
	return cmd
}

// each does one thing to several jobs, and lists what became of them.
func each(ctx context.Context, shell cli.Shell, ids []string, fn func(context.Context, *pool.Pool, jobs.Record) (jobs.Record, error)) error {
	var changed []jobs.Record
	for _, id := range ids {
		err := pool.WithJob(ctx, shell, id, func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
			rec, err := fn(ctx, p, rec)
			if err != nil {
				return fmt.Errorf("job %s: %w", id, err)
			}
			changed = append(changed, rec)
			return nil
		})
		if err != nil {
			return errors.Join(err, jobview.Records.List(shell.Out, *shell.Format, changed))
		}
	}
	return jobview.Records.List(shell.Out, *shell.Format, changed)
}

func diff(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "diff ID", Short: "Print the patch of a finished job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				return patches.Write(ctx, p, rec, shell.Out)
			})
		},
	}
}

func apply(shell cli.Shell) *cobra.Command {
	var dir string
	var how checkout.How
	cmd := &cobra.Command{
		Use: "apply ID", Short: "Apply the patch of a finished job to a working tree", Args: cobra.ExactArgs(1),
		Long: `Apply applies the patch to the work tree around --dir, at its top, and commits
nothing. It runs no program that the repository's configuration or attributes name:
files with a filter are written as they are in the repository, and are listed. A job
that changed nothing, and a patch that does not apply, are errors. With --3way
conflicting changes are merged, in the index, too.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				var patch bytes.Buffer
				if err := patches.Write(ctx, p, rec, &patch); err != nil {
					return err
				}
				if patch.Len() == 0 {
					return patches.Unchanged(rec)
				}
				return patches.Apply(ctx, shell, dir, how, patch.Bytes())
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "directory in the work tree to apply it to")
	cmd.Flags().BoolVar(&how.Check, "check", false, "only check whether it applies")
	cmd.Flags().BoolVar(&how.ThreeWay, "3way", false, "merge conflicting changes, and leave conflict markers")
	return cmd
}
