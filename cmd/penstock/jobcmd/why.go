package jobcmd

import (
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/why"
)

// NewWhy returns the command why.
func NewWhy(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "why ID…", Short: "Explain what keeps a job in its state, and what would change that", Args: cobra.MinimumNArgs(1),
		Long: `Why names the one cause that keeps a job from running or from ending: a pause, a time,
a worker that holds it, the lack of a worker, or jobs before it. It names the first
cause: as long as that remains, removing another one would not help.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.With(cmd.Context(), shell, "read", func(p *pool.Pool) error {
				var list []why.Standing
				var err error
				for _, id := range args {
					var s why.Standing
					if s, err = p.Client.Why(cmd.Context(), id); err != nil {
						break
					}
					list = append(list, s)
				}
				return errors.Join(cli.NotFound(err, "penstock job ls lists the jobs that are kept"), sayWhy(shell, list))
			})
		},
	}
}

func sayWhy(shell cli.Shell, list []why.Standing) error {
	view := cli.View[why.Standing]{ID: func(s why.Standing) string { return string(s.Constraint) }}
	switch {
	case *shell.Format != cli.Table && len(list) == 1:
		return view.One(shell.Out, *shell.Format, list[0])
	case *shell.Format != cli.Table:
		return view.List(shell.Out, *shell.Format, list)
	}
	for _, s := range list {
		if err := describeWhy(shell.Out, s, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// describeWhy writes a standing for a person.
func describeWhy(w *console.Writer, s why.Standing, now time.Time) error {
	text := console.Sprintf("job %s is %s: %s (%s)\n", s.Job, s.State, s.Message, s.Constraint)
	if s.Until != nil && s.Until.After(now) {
		text += console.Sprintf("  for another:  %s\n", s.Until.Sub(now).Round(time.Second))
	}
	text += console.Sprintf("  to change it: %s\n", s.Change)
	for _, other := range s.Overlaps {
		text += console.Sprintf("  beside it:    %s\n", other.String())
	}
	_, err := io.WriteString(w, text)
	return err
}
