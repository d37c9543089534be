// Package runcmd is the command run, which runs one job here and now and shows it until
// its end.
package runcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

// New returns the command run.
func New(shell cli.Shell) *cobra.Command {
	var flags jobflags.Flags
	var how delivery
	cmd := &cobra.Command{
		Use:   "run [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Run one job here and now, show it, and print its result",
		Long: `Run submits one job, shows its session on standard error as it happens, and
prints the result. With -o json every event, and at last the result, is one line
of JSON on standard output.`,
		Example: `  penstock run "Fix the failing test" --agent claude --patch fix.patch
  penstock run --repo /src/app -- sh -c 'echo hello > hello.txt'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobflags.Parse(shell, cmd, args, flags)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return jobflags.DryRun(shell, job)
			}
			if err := jobflags.Base(cmd.Context(), shell, &job, flags); err != nil {
				return err
			}
			r := run{shell: shell, strictKey: flags.StrictKey, delivery: how, session: sessionview.New(shell.Err)}
			return r.run(cmd.Context(), job)
		},
	}
	flags.Add(cmd.Flags())
	flags.AddUncommitted(cmd.Flags())
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	flags.AddFile(cmd.Flags())
	cmd.Flags().StringVar(&how.patch, "patch", "", "write the patch to this file")
	cmd.Flags().BoolVar(&how.apply, "apply", false, "apply the patch to the work tree around the current directory, as job apply does")
	return jobflags.Grouped(cmd)
}

// A delivery says where the patch goes.
type delivery struct {
	patch string // a file
	apply bool   // to the work tree around the current directory
}

// A run is one call of the command.
type run struct {
	shell     cli.Shell
	strictKey bool
	delivery  delivery
	session   *sessionview.Output // for people
}

func (r *run) run(ctx context.Context, job jobs.Job) error {
	p, err := pool.Open(ctx, r.shell, "run", pool.Hooks{})
	if err != nil {
		return err
	}
	running, err := localworker.Beside(ctx, r.shell, p, 1, job)
	var result jobs.Result
	if err == nil {
		result, err = r.job(running, p, job)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	err = jobview.Outcome(nil, result)
	if err != nil && r.session.Over() {
		return &cli.Error{Code: cli.Code(err), Err: errors.New("")} // the session's end has shown it
	}
	return err
}

func (r *run) job(ctx context.Context, p *pool.Pool, job jobs.Job) (jobs.Result, error) {
	var none jobs.Result
	submitted, err := jobflags.Submit(ctx, r.shell, p, job, r.strictKey)
	if err != nil {
		return none, err
	}
	p.Outlast(r.shell)
	for event, err := range p.Client.Follow(ctx, submitted.ID, 0) {
		if err != nil {
			return none, interrupted(ctx, p, submitted.ID, err)
		}
		if err := r.show(event); err != nil {
			return none, err
		}
	}
	rec, err := p.Client.Get(ctx, submitted.ID)
	if err != nil {
		return none, fmt.Errorf("job %s: %w", submitted.ID, err)
	}
	result, err := p.Client.Result(ctx, rec.ID)
	if err != nil {
		return none, err
	}
	return result, errors.Join(r.print(result), r.delivery.deliver(ctx, r.shell, p, rec))
}

func interrupted(ctx context.Context, p *pool.Pool, id string, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		if !p.Own() {
			return cli.Fail(cli.ExitInterrupted, "penstock watch "+id+" shows it, penstock job cancel "+id+" ends it", "interrupted; job %s continues in the pool", id)
		}
		return cli.Fail(cli.ExitInterrupted, "penstock job cancel "+id+" ends it for good", "interrupted; job %s is kept and continues with the next pool on this data directory", id)
	}
	return pool.Cause(ctx, fmt.Errorf("follow job %s: %w", id, err))
}

// show shows an event: to programs on standard output, to people on standard error.
func (r *run) show(event jobs.Event) error {
	switch {
	case *r.shell.Format == cli.JSON || *r.shell.Format == cli.JSONL:
		return cli.View[jobs.Event]{}.One(r.shell.Out, cli.JSONL, event)
	case *r.shell.Progress == cli.ProgressQuiet:
		return nil
	}
	return r.session.Show(event)
}

// print writes the result, unless the user has just seen all of it.
func (r *run) print(result jobs.Result) error {
	if *r.shell.Format == cli.Table && r.session.Over() && r.shell.Out.Terminal() != nil {
		return nil
	}
	if *r.shell.Format == cli.JSON {
		return jobview.Results.One(r.shell.Out, cli.JSONL, result)
	}
	return jobview.Results.One(r.shell.Out, *r.shell.Format, result)
}

// deliver writes or applies the patch where that was asked for.
func (d delivery) deliver(ctx context.Context, shell cli.Shell, p *pool.Pool, rec jobs.Record) error {
	if d.patch == "" && !d.apply {
		return nil
	}
	var patch bytes.Buffer
	if err := patches.Write(ctx, p, rec, &patch); err != nil {
		return err
	}
	if d.patch != "" {
		if err := os.WriteFile(d.patch, patch.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the patch: %w", err)
		}
	}
	switch {
	case !d.apply:
		return nil
	case patch.Len() > 0:
		return patches.Apply(ctx, shell, ".", checkout.How{}, patch.Bytes())
	case rec.Outcome == jobs.Success:
		return patches.Unchanged(rec)
	}
	return nil // the outcome says it
}
