package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

func (a *app) scheduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule", Aliases: []string{"schedules"}, Short: "Submit jobs on a schedule",
		Long: `A schedule submits the same job repeatedly: at the times of a crontab line, or at a
fixed interval. It fires while a pool runs (penstock serve). Each firing makes one
job, even after a crash.`,
	}
	cmd.AddCommand(a.scheduleAdd(), a.scheduleLs(), a.scheduleGet(),
		a.scheduleChange("pause", "Pause a schedule until it is resumed", func(ctx context.Context, p *pool.Pool, name string) (calendar.Record, error) {
			return p.Client.Schedules().Pause(ctx, name)
		}),
		a.scheduleChange("resume", "Resume a paused schedule", func(ctx context.Context, p *pool.Pool, name string) (calendar.Record, error) {
			return p.Client.Schedules().Resume(ctx, name)
		}),
		a.scheduleRun(), a.scheduleRm())
	return cmd
}

// A scheduleState is a schedule as people and programs see it.
type scheduleState struct {
	calendar.Record
	// Upcoming are the next firings, in the schedule's time zone.
	Upcoming []time.Time `json:"upcoming"`
}

// upcoming is how many of the next firings are shown.
const upcoming = 5

func stateOf(rec calendar.Record) scheduleState {
	return scheduleState{rec, append([]time.Time{}, rec.Upcoming(upcoming)...)}
}

var scheduleView = cli.View[scheduleState]{
	Header: []string{"NAME", "WHEN", "NEXT", "LAST", "JOB", "QUEUE"},
	Row: func(s scheduleState) []string {
		last, made := "", ""
		if f := s.Last; f != nil {
			last, made = f.At.Local().Format(time.RFC3339), f.Job
			if f.Skipped != "" {
				made = "skipped: " + string(f.Skipped)
			}
		}
		return []string{s.Name, when(s.Schedule), nextWords(s), last, made, s.Job.Queue}
	},
	ID: func(s scheduleState) string { return s.Name },
}

// when says in words at which times a schedule fires.
func when(s calendar.Schedule) string {
	if s.Every > 0 {
		return "every " + time.Duration(s.Every).String()
	}
	return s.Cron + " " + s.Timezone
}

func nextWords(s scheduleState) string {
	switch {
	case s.Paused != nil:
		return "paused"
	case len(s.Upcoming) == 0:
		return "never"
	}
	return s.Upcoming[0].Format(time.RFC3339)
}

// withSchedules opens the pool for a command about schedules.
func (a *app) withSchedules(ctx context.Context, fn func(p *pool.Pool) error) error {
	return a.withCalendar(ctx, "read", fn)
}

// withCalendar is withSchedules for a command that may begin a pool.
func (a *app) withCalendar(ctx context.Context, owner string, fn func(p *pool.Pool) error) error {
	p, err := pool.Open(ctx, a.shell(), owner, pool.Hooks{})
	if err != nil {
		return err
	}
	err = fn(p)
	if errors.Is(err, jobs.ErrNotFound) {
		err = cli.Fail(cli.ExitNotFound, "penstock schedule ls lists them", "%w", err)
	}
	return errors.Join(err, p.Close())
}

// sayUnserved warns that nothing happens while no pool runs.
func (a *app) sayUnserved(p *pool.Pool, what string) {
	if p.Own() {
		a.err.Printf("penstock: no pool runs on %s; %s while one does (penstock serve --slots 2)\n", a.cfg.Data, what)
	}
}

func (a *app) scheduleLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the schedules, when each fires next, and what it did last", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withSchedules(cmd.Context(), func(p *pool.Pool) error {
				list, err := pool.Collect(p.Client.Schedules().List(cmd.Context()))
				if err != nil {
					return err
				}
				states := make([]scheduleState, len(list))
				for i, rec := range list {
					states[i] = stateOf(rec)
				}
				return scheduleView.List(a.out, a.format, states)
			})
		},
	}
}

func (a *app) scheduleGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show a schedule: its job, its next firings and its last one", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(p *pool.Pool) error {
				rec, err := p.Client.Schedules().Get(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if a.format == cli.Table {
					a.format = cli.YAML
				}
				return scheduleView.One(a.out, a.format, stateOf(rec))
			})
		},
	}
}

// scheduleChange changes a schedule and shows it.
func (a *app) scheduleChange(verb, short string, change func(context.Context, *pool.Pool, string) (calendar.Record, error)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(p *pool.Pool) error {
				rec, err := change(cmd.Context(), p, args[0])
				if err != nil {
					return err
				}
				return scheduleView.One(a.out, a.format, stateOf(rec))
			})
		},
	}
}

var firingView = cli.View[calendar.Firing]{
	Header: []string{"JOB", "RUN"},
	Row:    func(f calendar.Firing) []string { return []string{f.Job, f.Run} },
	ID:     func(f calendar.Firing) string { return f.Job },
}

func (a *app) scheduleRun() *cobra.Command {
	return &cobra.Command{
		Use: "run NAME", Short: "Submit a schedule's job now, even if the schedule is paused; its next firing does not change", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(p *pool.Pool) error {
				rec, err := p.Client.Schedules().Run(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				a.sayUnserved(p, "the job begins")
				return firingView.One(a.out, a.format, *rec.Last)
			})
		},
	}
}

func (a *app) scheduleRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME…", Short: "Remove schedules; their jobs stay", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedules(cmd.Context(), func(p *pool.Pool) error {
				for _, name := range args {
					if err := p.Client.Schedules().Remove(cmd.Context(), name); err != nil {
						return err
					}
					a.err.Printf("penstock: removed schedule %s\n", name)
				}
				return nil
			})
		},
	}
}
