// Package schedulecmd is the command schedule: jobs that are submitted repeatedly.
package schedulecmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/calendar"
)

// New returns the command schedule.
func New(shell cli.Shell) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule", Aliases: []string{"schedules"}, Short: "Submit jobs on a schedule",
		Long: `A schedule submits the same job repeatedly: at the times of a crontab line, or at a
fixed interval. It fires while a pool runs (penstock serve). Each firing makes one
job, even after a crash.`,
	}
	cmd.AddCommand(add(shell), ls(shell), get(shell),
		changing(shell, "pause", "Pause a schedule until it is resumed", func(ctx context.Context, p *pool.Pool, name string) (calendar.Record, error) {
			return p.Client.Schedules().Pause(ctx, name)
		}),
		changing(shell, "resume", "Resume a paused schedule", func(ctx context.Context, p *pool.Pool, name string) (calendar.Record, error) {
			return p.Client.Schedules().Resume(ctx, name)
		}),
		run(shell), remove(shell))
	return cmd
}

// A state is a schedule as people and programs see it.
type state struct {
	calendar.Record
	// Upcoming are the next firings, in the schedule's time zone.
	Upcoming []time.Time `json:"upcoming"`
}

// upcoming is how many of the next firings are shown.
const upcoming = 5

func stateOf(rec calendar.Record) state {
	return state{rec, append([]time.Time{}, rec.Upcoming(upcoming)...)}
}

var view = cli.View[state]{
	Header: []string{"NAME", "WHEN", "NEXT", "LAST", "JOB", "QUEUE"},
	Row: func(s state) []string {
		last, made := "", ""
		if f := s.Last; f != nil {
			last, made = f.At.Local().Format(time.RFC3339), f.Job
			if f.Skipped != "" {
				made = "skipped: " + string(f.Skipped)
			}
		}
		return []string{s.Name, when(s.Schedule), nextWords(s), last, made, s.Job.Queue}
	},
	ID: func(s state) string { return s.Name },
}

// when says in words at which times a schedule fires.
func when(s calendar.Schedule) string {
	if s.Every > 0 {
		return "every " + time.Duration(s.Every).String()
	}
	return s.Cron + " " + s.Timezone
}

func nextWords(s state) string {
	switch {
	case s.Paused != nil:
		return "paused"
	case len(s.Upcoming) == 0:
		return "never"
	}
	return s.Upcoming[0].Format(time.RFC3339)
}

// withSchedules opens the pool for a command about schedules.
func withSchedules(ctx context.Context, shell cli.Shell, fn func(p *pool.Pool) error) error {
	return withCalendar(ctx, shell, "read", fn)
}

// withCalendar is withSchedules for a command that may begin a pool.
func withCalendar(ctx context.Context, shell cli.Shell, owner string, fn func(p *pool.Pool) error) error {
	return pool.With(ctx, shell, owner, func(p *pool.Pool) error {
		return cli.NotFound(fn(p), "penstock schedule ls lists them")
	})
}

// sayUnserved warns that nothing happens while no pool runs.
func sayUnserved(shell cli.Shell, p *pool.Pool, what string) {
	if p.Own() {
		shell.Err.Printf("penstock: no pool runs on %s; %s while one does (penstock serve --slots 2)\n", shell.Config.Data, what)
	}
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the schedules, when each fires next, and what it did last", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withSchedules(cmd.Context(), shell, func(p *pool.Pool) error {
				list, err := pool.Collect(p.Client.Schedules().List(cmd.Context()))
				if err != nil {
					return err
				}
				states := make([]state, len(list))
				for i, rec := range list {
					states[i] = stateOf(rec)
				}
				return view.List(shell.Out, *shell.Format, states)
			})
		},
	}
}

func get(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a schedule: its job, its next firings and its last one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSchedules(cmd.Context(), shell, func(p *pool.Pool) error {
				rec, err := p.Client.Schedules().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if *shell.Format == cli.Table {
					*shell.Format = cli.YAML
				}
				return view.One(shell.Out, *shell.Format, stateOf(rec))
			})
		},
	}
}

// changing changes a schedule and shows it.
func changing(shell cli.Shell, verb, short string, change func(context.Context, *pool.Pool, string) (calendar.Record, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSchedules(cmd.Context(), shell, func(p *pool.Pool) error {
				rec, err := change(cmd.Context(), p, args[0])
				if err != nil {
					return err
				}
				return view.One(shell.Out, *shell.Format, stateOf(rec))
			})
		},
	}
}

var firingView = cli.View[calendar.Firing]{
	Header: []string{"JOB", "RUN"},
	Row:    func(f calendar.Firing) []string { return []string{f.Job, f.Run} },
	ID:     func(f calendar.Firing) string { return f.Job },
}

func run(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "Submit a schedule's job now, even if the schedule is paused; its next firing does not change", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSchedules(cmd.Context(), shell, func(p *pool.Pool) error {
				rec, err := p.Client.Schedules().Run(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				sayUnserved(shell, p, "the job begins")
				return firingView.One(shell.Out, *shell.Format, *rec.Last)
			})
		},
	}
}

func remove(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Remove schedules; their jobs stay", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withSchedules(cmd.Context(), shell, func(p *pool.Pool) error {
				for _, name := range args {
					if err := p.Client.Schedules().Remove(cmd.Context(), name); err != nil {
						return err
					}
					shell.Err.Printf("penstock: removed schedule %s\n", name)
				}
				return nil
			})
		},
	}
}
