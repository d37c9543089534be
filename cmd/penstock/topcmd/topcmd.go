// Package topcmd is the command top, which shows what a pool does on a whole terminal.
//
//	snapshot ──every interval──▶ model ──tables──▶ terminal
//	                               ▲ keys
//
// All that the terminal shows of jobs was written by others, so each cell is made visible
// before it is drawn. Where standard output is no terminal, one snapshot is printed.
package topcmd

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/operation"
)

// New returns the command top.
func New(shell cli.Shell) *cobra.Command {
	window, interval := operation.DefaultWindow, 2*time.Second
	cmd := &cobra.Command{
		Use: "top", Short: "Show queues, workers and running jobs on the whole terminal, as they are now", Args: cobra.NoArgs,
		Long: `Top shows what a pool does: running jobs, queues with the rates and the cost of a window,
workers, and the jobs that are stuck, with what keeps them. Where standard output is no
terminal, or with -o json, it prints one snapshot and ends.

  tab ← →   another table          /       show only lines with a text
  ↑ ↓       choose a line          s       sort by the next column
  enter     what keeps the job     p       pause or resume the queue, for operators
  q         end`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if window <= 0 || interval < 100*time.Millisecond {
				return cli.Usage("", "--window is to be more than nothing, and --interval 100ms at least")
			}
			return pool.With(cmd.Context(), shell, "read", func(p *pool.Pool) error {
				if *shell.Format == cli.Table && shell.Out.Terminal() != nil && shell.Out.Rich() {
					return show(cmd.Context(), shell, newModel(p.Client, window, interval))
				}
				return once(cmd.Context(), shell, p, window)
			})
		},
	}
	cmd.Flags().DurationVar(&window, "window", window, "how far back to look at jobs that began and ended")
	cmd.Flags().DurationVar(&interval, "interval", interval, "how often to look")
	return cmd
}

// once prints one snapshot: for people the tables one below the other.
func once(ctx context.Context, shell cli.Shell, p *pool.Pool, window time.Duration) error {
	s, err := look(ctx, p.Client, window)
	if err != nil {
		return err
	}
	if *shell.Format != cli.Table {
		view := cli.View[snapshot]{ID: func(snapshot) string { return "" }}
		if *shell.Format == cli.IDs {
			return cli.View[string]{ID: func(id string) string { return id }}.List(shell.Out, cli.IDs, s.ids())
		}
		return view.One(shell.Out, *shell.Format, s)
	}
	for _, line := range s.head() {
		if err := shell.Out.Row(console.Span{Text: line}); err != nil {
			return err
		}
	}
	for _, t := range s.tables() {
		if len(t.rows) == 0 {
			continue
		}
		var cells [][]string
		for _, r := range t.rows {
			cells = append(cells, r.cells)
		}
		shell.Out.Printf("\n%s\n", t.name)
		if err := console.Table(shell.Out, t.header, cells); err != nil {
			return err
		}
	}
	return nil
}

// show shows the model until it is ended. Signals end the context.
func show(ctx context.Context, shell cli.Shell, m *model) error {
	m.color = shell.Out.Colored()
	m.request = func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, patience) }
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(shell.In), tea.WithOutput(shell.Out.Terminal()), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil || m.interrupted || errors.Is(err, tea.ErrInterrupted) {
		return cli.Fail(cli.ExitInterrupted, "", "")
	}
	return err
}
