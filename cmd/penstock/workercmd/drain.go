package workercmd

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/client"
	"github.com/penstock-run/penstock/jobs/presence"
	"github.com/penstock-run/penstock/jobs/why"
)

func drain(shell cli.Shell) *cobra.Command {
	var which selection
	var wait bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "drain [WORKER…]", Short: "Let workers finish their jobs and claim no more",
		Long: `Drain has workers claim no more jobs; what they run goes on. It returns when the workers
have confirmed that, with --wait when they have no jobs left. A worker drains until
penstock worker resume, or until its process ends: one that is started again claims jobs.`,
		Example: `  penstock worker drain build-3 --wait
  penstock worker drain --label gpu`,
		RunE: func(cmd *cobra.Command, args []string) error {
			which.names = args
			ctx := cmd.Context()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, limit, cli.Fail(cli.ExitTimeout, "the workers keep draining; the same command waits again", "not drained after %v", limit))
				defer cancel()
			}
			c := change{shell: shell, wait: wait, ask: client.Worker.Drain, done: func(w why.Worker) bool { return w.State == why.WorkerDraining }}
			if wait {
				c.done = why.Worker.Drained
			}
			return c.run(ctx, which)
		},
	}
	which.flags(cmd.Flags(), "drain")
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the workers have no jobs left, or have ended")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this long; the workers keep draining")
	return cmd
}

func resume(shell cli.Shell) *cobra.Command {
	var which selection
	cmd := &cobra.Command{
		Use: "resume [WORKER…]", Short: "Let workers that drain claim jobs again",
		RunE: func(cmd *cobra.Command, args []string) error {
			which.names = args
			c := change{shell: shell, ask: client.Worker.Resume, done: func(w why.Worker) bool { return w.Drain == nil }}
			return c.run(cmd.Context(), which)
		},
	}
	which.flags(cmd.Flags(), "resume")
	return cmd
}

// A selection says which workers a command is about.
type selection struct {
	names  []string
	all    bool
	labels []string
}

func (s *selection) flags(flags *pflag.FlagSet, verb string) {
	flags.BoolVar(&s.all, "all", false, verb+" all workers")
	flags.StringSliceVar(&s.labels, "label", nil, verb+" the workers that have this label (repeatable: that have all of them)")
}

// workers returns the names of the workers. Those that were named need not be alive.
func (s selection) workers(ctx context.Context, p *pool.Pool) ([]string, error) {
	if len(s.names) > 0 {
		return s.names, nil
	}
	list, err := p.Client.Workers(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range list {
		lacks := func(label string) bool { return !slices.Contains(w.Labels, label) }
		if !slices.ContainsFunc(s.labels, lacks) {
			names = append(names, w.Name)
		}
	}
	if len(names) == 0 {
		return nil, cli.Fail(cli.ExitNotFound, "penstock worker ls lists those that are alive", "no worker is alive that this selects")
	}
	return names, nil
}

func (s selection) check() error {
	ways := 0
	for _, used := range []bool{len(s.names) > 0, s.all, len(s.labels) > 0} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return cli.Usage("penstock worker ls lists the workers", "name workers, or select them with --all or with --label")
	}
	return nil
}

// confirmWithin is how long a worker may take to read what it was asked. One that is
// alive does so at its next heartbeat.
const confirmWithin = 3 * presence.Every

// A change is something that workers are asked to do.
type change struct {
	shell cli.Shell
	ask   func(client.Worker, context.Context) (why.Worker, error)
	done  func(why.Worker) bool
	wait  bool // until it is done, however long that takes
}

// run asks the workers, all before it waits for the first.
func (c change) run(ctx context.Context, which selection) error {
	if err := which.check(); err != nil {
		return err
	}
	return pool.With(ctx, c.shell, "read", func(p *pool.Pool) error { return c.all(ctx, p, which) })
}

func (c change) all(ctx context.Context, p *pool.Pool, which selection) error {
	names, err := which.workers(ctx, p)
	if err != nil {
		return err
	}
	var asked []why.Worker
	var failed []error
	for _, name := range names {
		w, err := c.ask(p.Client.Worker(name), ctx)
		switch {
		case err == nil:
			asked = append(asked, w)
		case errors.Is(err, jobs.ErrNotFound) && len(which.names) == 0: // it has just ended
		default:
			failed = append(failed, explain(ctx, p, name, err))
		}
	}
	for i, w := range asked {
		if asked[i], err = c.await(ctx, p, w); err != nil {
			failed = append(failed, err)
		}
	}
	if len(asked) > 0 {
		failed = append(failed, view.List(c.shell.Out, *c.shell.Format, asked))
	}
	return errors.Join(failed...)
}

// await waits until a worker has done what it was asked, or has ended. Servers may be
// away meanwhile.
func (c change) await(ctx context.Context, p *pool.Pool, w why.Worker) (why.Worker, error) {
	if !c.wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, confirmWithin, cli.Fail(cli.ExitTimeout,
			"the request is kept, and the worker does it when it reads it; workers of an earlier release cannot, nor those whose role on the bus is of one",
			"worker %s has not confirmed within %v", w.Name, confirmWithin))
		defer cancel()
	}
	left := -1
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if c.done(w) {
			return w, nil
		}
		if c.wait && w.Busy != left && *c.shell.Progress != cli.ProgressQuiet {
			left = w.Busy
			c.shell.Err.Printf("penstock: worker %s drains; jobs left: %d\n", w.Name, left)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return w, c.over(ctx, w)
		}
		now, err := p.Client.Worker(w.Name).Get(ctx)
		switch {
		case err == nil && now.Started.Equal(w.Started):
			w = now
		case err == nil || errors.Is(err, jobs.ErrNotFound):
			c.shell.Err.Printf("penstock: worker %s has ended\n", w.Name)
			return w, nil
		case ctx.Err() != nil:
			return w, c.over(ctx, w)
		case !errors.Is(err, jobs.ErrUnavailable):
			return w, err
		}
	}
}

// over says why the command does not wait any longer.
func (c change) over(ctx context.Context, w why.Worker) error {
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) {
		return cli.Fail(cli.ExitInterrupted, "penstock worker get "+w.Name+" shows what it does", "interrupted; what worker %s was asked stays", w.Name)
	}
	return err
}
