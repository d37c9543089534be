package jobcmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/tries"
)

// NewSubmit returns the command submit.
func NewSubmit(shell cli.Shell) *cobra.Command {
	var flags jobflags.Flags
	var several tries.Flags
	cmd := &cobra.Command{
		Use:   "submit [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Submit one job and return at once",
		Example: `  penstock submit "Fix the typo in README" --repo /src/app --agent claude
  penstock submit --job job.json
  penstock submit --repo . -- ./agent.sh`,
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
			p, err := pool.Open(cmd.Context(), shell, "submit", pool.Hooks{})
			if err != nil {
				return err
			}
			answers, err := tries.Submit(cmd.Context(), shell, p, list, flags.StrictKey)
			switch {
			case err != nil:
			case len(list) == 1:
				err = jobview.Submitted.One(shell.Out, *shell.Format, answers[0])
			default:
				err = jobview.Submitted.List(shell.Out, *shell.Format, answers)
				shell.Err.Printf("penstock: %d tries in batch %s: penstock batch report shows them, penstock batch apply brings in the best\n", len(list), list[0].Batch)
			}
			if p.Own() && err == nil {
				shell.Err.Printf("penstock: no pool runs on %s; the job waits until one does (penstock serve --slots 2)\n", shell.Config.Data)
			}
			return errors.Join(err, p.Close())
		},
	}
	flags.Add(cmd.Flags())
	flags.AddUncommitted(cmd.Flags())
	flags.AddFile(cmd.Flags())
	several.Add(cmd)
	return jobflags.Grouped(cmd)
}
