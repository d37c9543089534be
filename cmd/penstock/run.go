package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

func (a *app) runCommand() *cobra.Command {
	var flags jobflags.Flags
	var r oneRun
	cmd := &cobra.Command{
		Use:   "run [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Run one job here and now, show it, and print its result",
		Long: `Run submits one job, shows its session on standard error as it happens, and
prints the result. With -o json every event, and at last the result, is one line
of JSON on standard output.`,
		Example: `  penstock run "Fix the failing test" --agent claude --patch fix.patch
  penstock run --repo /src/app -- sh -c 'echo hello > hello.txt'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobflags.Parse(a.shell(), cmd, args, flags)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return jobflags.DryRun(a.shell(), job)
			}
			if err := jobflags.Base(cmd.Context(), a.shell(), &job, flags); err != nil {
				return err
			}
			r.app, r.strictKey, r.session = a, flags.StrictKey, sessionview.New(a.err)
			return r.run(cmd.Context(), job)
		},
	}
	flags.Add(cmd.Flags())
	flags.AddUncommitted(cmd.Flags())
	cmd.Flags().AddFlagSet(jail.PolicyFlag(&a.cfg))
	flags.AddFile(cmd.Flags())
	cmd.Flags().StringVar(&r.patch, "patch", "", "write the patch to this file")
	cmd.Flags().BoolVar(&r.apply, "apply", false, "apply the patch to the work tree around the current directory, as job apply does")
	return jobflags.Grouped(cmd)
}

// A oneRun is one call of run.
type oneRun struct {
	*app
	patch     string
	apply     bool
	strictKey bool
	session   *sessionview.Output // for people
}

func (r *oneRun) run(ctx context.Context, job jobs.Job) error {
	p, err := pool.Open(ctx, r.app.shell(), "run", pool.Hooks{})
	if err != nil {
		return err
	}
	running, err := r.serveOwn(ctx, p, 1, job)
	var result jobs.Result
	if err == nil {
		result, err = r.job(running, p, job)
	}
	if err = errors.Join(err, p.Close()); err != nil {
		return err
	}
	err = jobview.Outcome(nil, result)
	if err != nil && r.shown() {
		return &cli.Error{Code: cli.Code(err), Err: errors.New("")} // the session's end has shown it
	}
	return err
}

// shown reports whether the end of the job was shown to a person.
func (r *oneRun) shown() bool { return r.session.Over() }

func (r *oneRun) job(ctx context.Context, p *pool.Pool, job jobs.Job) (jobs.Result, error) {
	var none jobs.Result
	submitted, err := jobflags.Submit(ctx, r.app.shell(), p, job, r.strictKey)
	if err != nil {
		return none, err
	}
	p.Outlast(r.app.shell())
	for event, err := range p.Client.Follow(ctx, submitted.ID, 0) {
		if err != nil {
			return none, r.interrupted(ctx, p, submitted.ID, err)
		}
		if err := r.tell(event); err != nil {
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
	return result, errors.Join(r.print(result), r.deliver(ctx, p, rec))
}

func (r *oneRun) interrupted(ctx context.Context, p *pool.Pool, id string, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		if !p.Own() {
			return cli.Fail(cli.ExitInterrupted, "penstock watch "+id+" shows it, penstock job cancel "+id+" ends it", "interrupted; job %s continues in the pool", id)
		}
		return cli.Fail(cli.ExitInterrupted, "penstock job cancel "+id+" ends it for good", "interrupted; job %s is kept and continues with the next pool on this data directory", id)
	}
	return pool.Cause(ctx, fmt.Errorf("follow job %s: %w", id, err))
}

// tell shows an event: to programs on standard output, to people on standard error.
func (r *oneRun) tell(event jobs.Event) error {
	switch {
	case r.format == cli.JSON || r.format == cli.JSONL:
		return cli.View[jobs.Event]{}.One(r.out, cli.JSONL, event)
	case r.progress == cli.ProgressQuiet:
		return nil
	}
	return r.session.Show(event)
}

// print writes the result, unless the user has just seen all of it.
func (r *oneRun) print(result jobs.Result) error {
	if r.format == cli.Table && r.shown() && r.out.Terminal() != nil {
		return nil
	}
	if r.format == cli.JSON {
		return jobview.Results.One(r.out, cli.JSONL, result)
	}
	return jobview.Results.One(r.out, r.format, result)
}

// deliver writes or applies the patch where that was asked for.
func (r *oneRun) deliver(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
	if r.patch == "" && !r.apply {
		return nil
	}
	var patch bytes.Buffer
	if err := patches.Write(ctx, p, rec, &patch); err != nil {
		return err
	}
	if r.patch != "" {
		if err := os.WriteFile(r.patch, patch.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the patch: %w", err)
		}
	}
	switch {
	case !r.apply:
		return nil
	case patch.Len() > 0:
		return patches.Apply(ctx, r.app.shell(), ".", checkout.How{}, patch.Bytes())
	case rec.Outcome == jobs.Success:
		return patches.Unchanged(rec)
	}
	return nil // the outcome says it
}

// serveOwn runs a dispatcher and a worker beside the command when the pool is
// its own. A pool that serves others has its own; one of another run does not
// take jobs that it would not live to see.
func (a *app) serveOwn(ctx context.Context, p *pool.Pool, slots int, work ...jobs.Job) (context.Context, error) {
	if !p.Own() {
		if p.Owner != "" && p.Owner != "serve" {
			return nil, cli.Fail(cli.ExitUnexpected, "wait for it, use another --data, or run penstock serve so that both can use it",
				"data directory %s is in use by penstock %s", a.cfg.Data, p.Owner)
		}
		return ctx, nil
	}
	for _, job := range work { // no other worker serves them
		for _, need := range job.Needs {
			if !slices.Contains(a.cfg.Worker.Labels, need) {
				return nil, cli.Usage("declare that this host has it: PENSTOCK_WORKER_LABELS="+strings.Join(job.Needs, ",")+"; or use --server",
					"the job needs %s, and this command's own worker is the only one", need)
			}
		}
		if queue := job.WithDefaults().Queue; !slices.Contains(a.cfg.Worker.Queues, queue) {
			a.cfg.Worker.Queues = append(slices.Clone(a.cfg.Worker.Queues), queue)
		}
	}
	a.cfg.Worker.Drain = 0 // a user who interrupts the command wants it to end
	w, err := a.worker(ctx, p, slots, pool.Hooks{})
	if err != nil {
		return nil, err
	}
	return p.Start(ctx, p.Answering, p.Dispatcher.Run, w.Run), nil
}
