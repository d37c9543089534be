package trialmerge

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/chosen"
	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/patches"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/checkout"
)

// trialLimits are those of a trial where no flag names others.
var trialLimits = Limits{Pairs: 2000, Time: 5 * time.Minute}

// Command is the command batch overlaps.
func Command(shell cli.Shell) *cobra.Command {
	var dir, agent string
	var named []string
	limits := trialLimits
	cmd := &cobra.Command{
		Use: "overlaps [DIR|ID]", Short: "Try which results of a batch merge with each other, and in which order most of them can be merged",
		Long: `Overlaps makes a three-way merge of each two results that change the same files, in the
repository around --dir, and then merges one after the other in the order in which the
fewest stop at a conflict. It takes the results that batch apply would take, or with --job
those of any jobs. Neither the work tree nor the repository changes, and no program that
the repository's configuration or attributes name runs. What was not tried is "untried".
With -o id it prints the jobs in that order.`,
		Example: `  penstock batch overlaps penstock-results
  penstock batch overlaps penstock-results -o json
  penstock batch apply penstock-results --order least-conflicts`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+min(len(named), 1) != 1 {
				return cli.Usage("name the directory that batch run used as --out, a batch's id, or jobs with --job", "what to merge is not clear")
			}
			if limits.Pairs < 0 || limits.Time <= 0 {
				return cli.Usage("", "--max-pairs and --max-time must be positive")
			}
			tree, err := patches.OpenRepository(cmd.Context(), dir)
			if err != nil {
				return err
			}
			try := func(c chosen.Results) error {
				if err := c.OfOneAgent(agent); err != nil {
					return err
				}
				c.Tell(shell)
				found, err := tryMerges(cmd.Context(), shell, tree, c, limits)
				if err != nil {
					return err
				}
				return found.Print(shell)
			}
			if len(named) > 0 {
				return chosen.Jobs(cmd.Context(), shell, named, try)
			}
			return chosen.With(cmd.Context(), shell, args[0], try)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "directory in a work tree of the repository")
	cmd.Flags().StringSliceVar(&named, "job", nil, "instead of a batch: results of these jobs (repeatable)")
	cmd.Flags().StringVar(&agent, "agent", "", "of a batch that compares agents: only the results of this one")
	cmd.Flags().IntVar(&limits.Pairs, "max-pairs", limits.Pairs, "try at most this many pairs, those that change the same lines first")
	cmd.MarkFlagsMutuallyExclusive("job", "agent")
	cmd.Flags().DurationVar(&limits.Time, "max-time", limits.Time, "how long all of it may take")
	return cmd
}

func tryMerges(ctx context.Context, shell cli.Shell, tree *checkout.Tree, c chosen.Results, limits Limits) (Found, error) {
	if len(c.List) == 0 {
		return Found{}, c.None()
	}
	shell.Progressf("trying which of %d results merge with each other", len(c.List))
	return Try(ctx, tree, Batch{ID: c.Batch, Results: c.List, Source: c.Of}, limits)
}

// Sort puts results into the order in which the fewest of them stop at a conflict.
func Sort(ctx context.Context, shell cli.Shell, tree *checkout.Tree, c chosen.Results) error {
	found, err := tryMerges(ctx, shell, tree, c, trialLimits)
	if err != nil {
		return err
	}
	shell.Progressf("%s", found.Counts())
	place := map[string]int{}
	for i, turn := range found.Order {
		place[turn.Job] = i
	}
	slices.SortFunc(c.List, func(a, b jobs.Result) int { return cmp.Compare(place[a.Job], place[b.Job]) })
	return nil
}
