package main

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

func (a *app) jobCommand() *cobra.Command {
	job := &cobra.Command{Use: "job", Short: "Show and control jobs"}
	job.AddCommand(a.jobLs(), a.jobGet(), a.jobEvents(), a.jobCancel(), a.jobRetry(), a.jobResume(), a.jobFork(), a.jobInterrupt(), a.jobStop(), a.jobSet(), a.jobRaw(), a.jobDiff(), a.jobApply(), a.jobArtifacts(), a.jobSalvage(), worktreecmd.New(a.shell()))
	return job
}

func (a *app) jobEvents() *cobra.Command {
	cmd := a.logsCommand()
	cmd.Use, cmd.Short = "events ID", "Print the events of a job's session; the same as penstock logs"
	return cmd
}

func (a *app) jobGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Aliases: []string{"show"}, Args: cobra.ExactArgs(1),
		Short: "Show a job: its record, what its reason means, its request and its result",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), a.shell(), args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				view, err := p.Client.Show(ctx, rec.ID)
				if err != nil {
					return err
				}
				if a.format == cli.Table {
					a.format = cli.YAML
				}
				return cli.View[operation.Shown]{ID: func(v operation.Shown) string { return v.ID }}.One(a.out, a.format, view)
			})
		},
	}
}

func (a *app) jobCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID…", Short: "Cancel jobs, queued or running", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, p *pool.Pool, rec jobs.Record) (jobs.Record, error) {
				return p.Client.Cancel(ctx, rec.ID)
			})
		},
	}
}

func (a *app) jobRetry() *cobra.Command {
	var fromSalvage bool
	cmd := &cobra.Command{
		Use: "retry ID…", Short: "Run finished jobs without success again", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, p *pool.Pool, rec jobs.Record) (jobs.Record, error) {
				return p.Client.Retry(ctx, rec.ID, fromSalvage)
			})
		},
	}
	cmd.Flags().BoolVar(&fromSalvage, "from-salvage", false, "begin from the last saved changes of an earlier attempt")
	return cmd
}

// each does one thing to several jobs, and lists what became of them.
func (a *app) each(ctx context.Context, ids []string, fn func(context.Context, *pool.Pool, jobs.Record) (jobs.Record, error)) error {
	var changed []jobs.Record
	for _, id := range ids {
		err := pool.WithJob(ctx, a.shell(), id, func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
			rec, err := fn(ctx, p, rec)
			if err != nil {
				return fmt.Errorf("job %s: %w", id, err)
			}
			changed = append(changed, rec)
			return nil
		})
		if err != nil {
			return errors.Join(err, jobview.Records.List(a.out, a.format, changed))
		}
	}
	return jobview.Records.List(a.out, a.format, changed)
}

func (a *app) jobDiff() *cobra.Command {
	return &cobra.Command{
		Use: "diff ID", Short: "Print the patch of a finished job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), a.shell(), args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				return patches.Write(ctx, p, rec, a.out)
			})
		},
	}
}

func (a *app) jobApply() *cobra.Command {
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
			return pool.WithJob(cmd.Context(), a.shell(), args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				var patch bytes.Buffer
				if err := patches.Write(ctx, p, rec, &patch); err != nil {
					return err
				}
				if patch.Len() == 0 {
					return patches.Unchanged(rec)
				}
				return patches.Apply(ctx, a.shell(), dir, how, patch.Bytes())
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "directory in the work tree to apply it to")
	cmd.Flags().BoolVar(&how.Check, "check", false, "only check whether it applies")
	cmd.Flags().BoolVar(&how.ThreeWay, "3way", false, "merge conflicting changes, and leave conflict markers")
	return cmd
}
