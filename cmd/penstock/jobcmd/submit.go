package jobcmd

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
)

// NewSubmit returns the command submit.
func NewSubmit(shell cli.Shell) *cobra.Command {
	var flags jobflags.Flags
	cmd := &cobra.Command{
		Use:   "submit [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Submit one job and return at once",
		Example: `  penstock submit "Fix the typo in README" --repo /src/app --agent claude
  penstock submit --job job.json
  penstock submit --repo . -- ./agent.sh`,
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
			p, err := pool.Open(cmd.Context(), shell, "submit", pool.Hooks{})
			if err != nil {
				return err
			}
			answer, err := jobflags.Submit(cmd.Context(), shell, p, job, flags.StrictKey)
			if err == nil {
				err = jobview.Submitted.One(shell.Out, *shell.Format, answer)
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
	return jobflags.Grouped(cmd)
}
