package batchcmd

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/chosen"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/cmd/internal/series"
	"github.com/penstock-run/penstock/cmd/internal/trialmerge"
	"github.com/penstock-run/penstock/worker/checkout"
)

// applyFlags are those of batch apply.
type applyFlags struct {
	dir, agent, order         string
	dryRun, again, skip, quit bool
}

// The orders in which patches are applied.
const (
	batchOrder     = "batch"
	leastConflicts = "least-conflicts"
)

// goesOn reports whether the flags are about a series that is under way.
func (f applyFlags) goesOn() bool { return f.again || f.skip || f.quit }

func applyCommand(shell cli.Shell) *cobra.Command {
	var flags applyFlags
	cmd := &cobra.Command{
		Use: "apply [DIR|ID]", Short: "Apply the patches of a batch's successful jobs to a working tree, one after the other",
		Long: `Apply merges the patch of each successful job into the work tree around --dir and
into git's index, and commits nothing. It stops at the first conflict: resolve it, git
add the files, and continue with --continue, or leave the patch out with --skip. An
interrupted apply, too, goes on with --continue; no patch is applied twice. It runs no
program that the repository's configuration or attributes name.`,
		Example: `  penstock batch apply penstock-results --dry-run
  penstock batch apply penstock-results
  penstock batch apply --continue`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case flags.goesOn() && len(args) > 0:
				return cli.Usage("leave it out", "--continue, --skip and --quit are about the batch that is being applied")
			case !flags.goesOn() && len(args) == 0:
				return cli.Usage("name the directory that batch run used as --out, or a batch's id", "no batch was named")
			}
			tree, err := patches.OpenRepository(cmd.Context(), flags.dir)
			switch {
			case err != nil:
				return err
			case flags.goesOn():
				return goOn(cmd.Context(), shell, tree, flags)
			}
			return chosen.With(cmd.Context(), shell, args[0], func(c chosen.Results) error {
				if err := c.OfOneAgent(flags.agent); err != nil {
					return err
				}
				return begin(cmd.Context(), shell, tree, c, flags)
			})
		},
	}
	cmd.Flags().StringVar(&flags.dir, "dir", ".", "directory in the work tree to apply them to")
	cmd.Flags().StringVar(&flags.agent, "agent", "", "of a batch that compares agents: the one whose patches to apply")
	flags.order = batchOrder
	cmd.Flags().Var(input.OneOf(&flags.order, batchOrder, leastConflicts), "order", "batch: as the batch lists them; least-conflicts: as penstock batch overlaps says")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false, "only say which of them apply")
	cmd.Flags().BoolVar(&flags.again, "continue", false, "go on after a conflict is resolved, or after an interruption")
	cmd.Flags().BoolVar(&flags.skip, "skip", false, "put back what the patch with the conflict has changed, and go on without it")
	cmd.Flags().BoolVar(&flags.quit, "quit", false, "forget the rest, and leave the files as they are")
	for _, other := range []string{"continue", "skip", "quit"} {
		cmd.MarkFlagsMutuallyExclusive("agent", other)
		cmd.MarkFlagsMutuallyExclusive("order", other)
	}
	cmd.MarkFlagsMutuallyExclusive("dry-run", "continue", "skip", "quit")
	return cmd
}

var stepView = cli.View[series.Step]{
	Header: []string{"JOB", "ITEM", "STATE", "FILES", "CONFLICTS", "WHY"},
	Row: func(s series.Step) []string {
		return []string{s.Job, s.Item, string(s.State), strconv.Itoa(len(s.Before)), strings.Join(s.Conflicts, ", "), s.Why}
	},
	ID: func(s series.Step) string { return s.Job },
}

func begin(ctx context.Context, shell cli.Shell, tree *checkout.Tree, c chosen.Results, flags applyFlags) error {
	c.Tell(shell)
	if len(c.List) == 0 {
		return c.None()
	}
	if flags.order == leastConflicts {
		if err := trialmerge.Sort(ctx, shell, tree, c); err != nil {
			return err
		}
	}
	plan := series.Plan{Source: c.Source}
	for _, r := range c.List {
		plan.Steps = append(plan.Steps, series.Step{Job: r.Job, Item: r.ID, SHA256: r.PatchSHA256, State: series.Waiting})
	}
	if flags.dryRun {
		return rehearse(ctx, shell, tree, plan.Steps, c)
	}
	s, err := series.Begin(tree, plan)
	if err != nil {
		return underWay(err)
	}
	return errors.Join(run(ctx, shell, s, c), s.Close())
}

func underWay(err error) error {
	if errors.Is(err, series.ErrUnderWay) {
		return cli.Usage("go on with --continue or --skip, or forget it with --quit", "%w", err)
	}
	return err
}

// rehearse lists what would become of each patch.
func rehearse(ctx context.Context, shell cli.Shell, tree *checkout.Tree, steps []series.Step, c chosen.Results) error {
	if err := series.Rehearse(ctx, tree, steps, c.Of); err != nil {
		return err
	}
	err := stepView.List(shell.Out, *shell.Format, steps)
	bad := 0
	for _, s := range steps {
		if s.State == series.Conflict || s.State == series.Refused {
			bad++
		}
	}
	if bad > 0 {
		err = errors.Join(err, cli.Fail(cli.ExitFailure, "penstock batch apply stops at each of them", "%d of %d patches do not apply after those before them", bad, len(steps)))
	}
	return err
}

// goOn continues, or ends, the series of the work tree.
func goOn(ctx context.Context, shell cli.Shell, tree *checkout.Tree, flags applyFlags) error {
	s, err := series.Open(tree)
	if errors.Is(err, series.ErrNone) {
		return cli.Fail(cli.ExitNotFound, "penstock batch apply DIR begins one", "%w in %s", err, tree.Top())
	}
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // which only gives a lock free
	if flags.quit {
		return errors.Join(s.Quit(), stepView.List(shell.Out, *shell.Format, s.Steps))
	}
	if flags.skip {
		step, saved, err := s.Skip(ctx)
		if err != nil {
			return err
		}
		if step.Job != "" {
			shell.Err.Printf("penstock: skipped the patch of job %s\n", step.Job)
		}
		if len(saved) > 0 {
			shell.Err.Printf("penstock: these contents were replaced; git cat-file -p prints each:\n")
			shell.Err.Some(saved)
		}
	}
	return chosen.With(ctx, shell, s.Source, func(c chosen.Results) error { return run(ctx, shell, s, c) })
}

// run merges what is left, and lists all steps where that ends.
func run(ctx context.Context, shell cli.Shell, s *series.Series, c chosen.Results) error {
	err := s.Run(ctx, c.Of, func(step series.Step) {
		shell.Err.Printf("penstock: %s the patch of job %s, item %s: %d files\n", step.State, step.Job, step.Item, len(step.Before))
		if len(step.Filtered) > 0 {
			shell.Err.Printf("penstock: git filters do not run on files that an agent wrote; %d files are as they are in the repository:\n", len(step.Filtered))
			shell.Err.Some(step.Filtered)
		}
	})
	stop, stopped := errors.AsType[*series.StopError](err)
	switch {
	case stopped && stop.Err == nil:
		shell.Err.Printf("penstock: these files have conflicts:\n")
		shell.Err.Some(stop.Step.Conflicts)
		err = cli.Fail(cli.ExitStopped, "resolve the conflict markers, git add the files, then penstock batch apply --continue; or --skip", "%w", stop)
	case stopped:
		err = cli.Fail(cli.ExitStopped, "commit or stash what is in the way, then penstock batch apply --continue; or --skip", "%w", stop)
	}
	return errors.Join(err, stepView.List(shell.Out, *shell.Format, s.Steps))
}
