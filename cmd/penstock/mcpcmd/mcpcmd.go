// Package mcpcmd is the command mcp, which offers a pool to a language model.
package mcpcmd

import (
	"bufio"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/mcpstdio"
	"github.com/penstock-run/penstock/cmd/internal/mcptools"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// New returns the command mcp.
func New(shell cli.Shell) *cobra.Command {
	var flags jobflags.Flags
	var allow []string
	var bounds mcptools.Bounds
	cmd := &cobra.Command{
		Use:   "mcp [flags] [-- COMMAND ARG…]",
		Short: "Offer the pool to a language model, as an MCP server on standard input and output",
		Long: `Mcp speaks the Model Context Protocol over standard input and output, until the
input ends. Its tools read jobs, logs, patches, batches and queues. Only with --allow
do they submit, answer, retry or cancel.

The flags that describe a job hold for every job that the model submits, and it cannot
change what they set. It may lower the limits. Without --allow submit they have no effect.`,
		Example: `  claude mcp add penstock -- penstock mcp
  penstock mcp --allow submit,cancel --repo https://github.com/me/app --agent claude --max-cost 2 --total-cost 20`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			if len(before) > 0 {
				return cli.Usage("a command for the jobs stands behind --", "penstock mcp takes no argument %q", before[0])
			}
			for _, word := range allow {
				if !slices.Contains(mcptools.Allowances, word) {
					return cli.Usage("", "--allow: %w", input.NotOneOf(word, mcptools.Allowances))
				}
			}
			if bounds.Jobs < 0 || bounds.USD < 0 {
				return cli.Usage("0 is no limit", "--total-jobs and --total-cost are not negative")
			}
			template, err := flags.Values(command)
			if err != nil {
				return err
			}
			return serve(cmd.Context(), shell, mcptools.Config{Allow: allow, Bounds: bounds, Template: template, Locate: jobflags.RepositoryAround})
		},
	}
	own := cmd.Flags()
	own.StringSliceVar(&allow, "allow", nil, "what the model may do besides reading: "+input.List(mcptools.Allowances)+" (repeatable)")
	own.IntVar(&bounds.Jobs, "total-jobs", 0, "jobs that the model may submit in all")
	own.Float64Var(&bounds.USD, "total-cost", 0, "US dollars that these may cost together; each job needs --max-cost then")
	flags.AddTemplate(own)
	return jobflags.Grouped(cmd)
}

// serve serves one client, over the pool that runs.
func serve(ctx context.Context, shell cli.Shell, cfg mcptools.Config) error {
	p, err := pool.Open(ctx, shell, "mcp", pool.Hooks{})
	if err != nil {
		return err
	}
	if p.Own() { // it would keep the directory from the pool that is to run the jobs
		return errors.Join(cli.Fail(cli.ExitUnreachable, "penstock serve starts one; --server names one on another host", "no pool runs on %s", shell.Config.Data), p.Close())
	}
	cfg.Client, cfg.Release = p.Client.As("mcp"), shell.Release
	cfg.Submit = func(ctx context.Context, job jobs.Job) (operation.Submitted, error) {
		return p.Submit(ctx, job.In(jobflags.Trace()), "mcp")
	}
	err = mcpstdio.Serve(ctx, mcptools.New(cfg), shell.In, shell.Out)
	if errors.Is(err, bufio.ErrTooLong) {
		err = cli.Usage("", "a line has more than %d bytes", mcpstdio.MaxLine)
	}
	return errors.Join(err, p.Close())
}
