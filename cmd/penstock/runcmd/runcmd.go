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
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/localworker"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/cmd/internal/tries"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

// New returns the command run.
func New(shell cli.Shell) *cobra.Command {
	var flags jobflags.Flags
	var how delivery
	var several tries.Flags
	cmd := &cobra.Command{
		Use:   "run [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Run one job here and now, show it, and print its result",
		Long: `Run submits one job, shows its session on standard error as it happens, and
prints the result. With -o json every event, and at last the result, is one line
of JSON on standard output. With --best-of N the job runs N times, with --agents once
with each agent, and with both N times with each; the result, and the patch, are those of
the best try of all. The sessions are shown one after the other.`,
		Example: `  penstock run "Fix the failing test" --agent claude --patch fix.patch
  penstock run --repo /src/app -- sh -c 'echo hello > hello.txt'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			if err := several.Read(shell, &flags, len(command) > 0); err != nil {
				return err
			}
			job, err := jobflags.Describe(shell, before, command, flags)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return several.DryRun(shell, job)
			}
			list, err := several.Make(cmd.Context(), shell, job, flags)
			if err != nil {
				return err
			}
			r := run{shell: shell, strictKey: flags.StrictKey, delivery: how, session: sessionview.New(shell.Err)}
			return r.run(cmd.Context(), list)
		},
	}
	flags.Add(cmd.Flags())
	flags.AddUncommitted(cmd.Flags())
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	flags.AddFile(cmd.Flags())
	several.Add(cmd)
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

// run runs the tries of a job, or the only one.
func (r *run) run(ctx context.Context, list []jobs.Job) error {
	p, err := pool.Open(ctx, r.shell, "run", pool.Hooks{})
	if err != nil {
		return err
	}
	running, err := localworker.Beside(ctx, r.shell, p, min(len(list), workerparts.Slots(0)), list...)
	var result jobs.Result
	if err == nil {
		result, err = r.best(running, p, list)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	err = jobview.Outcome(nil, result)
	if err != nil && len(list) == 1 && r.session.Over() {
		return &cli.Error{Code: cli.Code(err), Err: errors.New("")} // the session's end has shown it
	}
	return err
}

// best shows the tries until the last has ended, and returns the result of the best.
func (r *run) best(ctx context.Context, p *pool.Pool, list []jobs.Job) (jobs.Result, error) {
	var none jobs.Result
	submitted, err := tries.Submit(ctx, r.shell, p, list, r.strictKey)
	if err != nil {
		return none, err
	}
	p.Outlast(r.shell)
	for i, try := range submitted {
		if len(list) > 1 {
			r.session = sessionview.New(r.shell.Err)
			r.shell.Err.Printf("penstock: try %d of %d, %s, job %s\n", i+1, len(list), list[i].Item, try.ID)
		}
		if err := r.follow(ctx, p, try.ID, list[i].Batch); err != nil {
			return none, err
		}
	}
	id := submitted[0].ID
	if len(list) > 1 {
		if id, err = tries.Best(ctx, r.shell, p, list[0].Batch); err != nil {
			return none, err
		}
	}
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		return none, fmt.Errorf("job %s: %w", id, err)
	}
	result, err := p.Client.Result(ctx, rec.ID)
	if err != nil {
		return none, err
	}
	return result, errors.Join(r.print(result, len(list) > 1), r.delivery.deliver(ctx, r.shell, p, rec))
}

// follow shows a job until its end.
func (r *run) follow(ctx context.Context, p *pool.Pool, id, batch string) error {
	for event, err := range p.Client.Follow(ctx, id, 0) {
		if err != nil {
			return interrupted(ctx, p, id, batch, err)
		}
		if err := r.show(event); err != nil {
			return err
		}
	}
	return nil
}

// interrupted says what becomes of a job, or of all tries of its batch, that the user waits for no
// longer.
func interrupted(ctx context.Context, p *pool.Pool, id, batch string, err error) error {
	if !errors.Is(context.Cause(ctx), context.Canceled) {
		return pool.Cause(ctx, fmt.Errorf("follow job %s: %w", id, err))
	}
	what, end := "job "+id, "penstock job cancel "+id
	if batch != "" {
		what, end = "batch "+batch, "penstock batch cancel "+batch
	}
	if !p.Own() {
		return cli.Fail(cli.ExitInterrupted, "penstock watch "+id+" shows it, "+end+" ends it", "interrupted; %s continues in the pool", what)
	}
	return cli.Fail(cli.ExitInterrupted, end+" ends it for good", "interrupted; %s is kept and continues with the next pool on this data directory", what)
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

// print writes the result, unless the user has just seen all of it, and nothing of other tries.
func (r *run) print(result jobs.Result, several bool) error {
	if !several && *r.shell.Format == cli.Table && r.session.Over() && r.shell.Out.Terminal() != nil {
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
