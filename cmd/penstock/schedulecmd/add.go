package schedulecmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/calendar"
)

// addFlags are the flags that describe a schedule, without its job.
type addFlags struct {
	job                             jobflags.Flags
	cron, timezone, missed, overlap string
	every, grace                    time.Duration
	replace                         bool
}

func add(shell cli.Shell) *cobra.Command {
	var f addFlags
	cmd := &cobra.Command{
		Use:   "add NAME [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Submit a job repeatedly, by a crontab line or at a fixed interval",
		Example: `  penstock schedule add nightly "Update the dependencies" --cron "0 3 * * 1-5" --timezone Europe/Berlin --repo /src/app --agent claude
  penstock schedule add smoke --every 1h --repo /src/app -- ./smoke.sh
  penstock schedule add nightly --replace --cron @daily --job job.json`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return addSchedule(shell, cmd, args, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.cron, "cron", "", `when: minute, hour, day of month, month and weekday, as in "0 3 * * 1-5", or @hourly, @daily, @weekly, @monthly, @yearly`)
	flags.DurationVar(&f.every, "every", 0, "or at this interval, as in 1h, counted from now")
	flags.StringVar(&f.timezone, "timezone", "", "time zone of --cron, as in Europe/Berlin (default UTC)")
	flags.Var(input.OneOf(&f.missed, missedWords()...), "missed", "firings missed while no pool ran: once (default: one job, late) or skip")
	flags.DurationVar(&f.grace, "grace", 0, "with --missed skip: how late a firing may be (default 1m)")
	flags.Var(input.OneOf(&f.overlap, overlapWords()...), "overlap", "a firing while the last job is not finished: skip (default) or allow")
	flags.BoolVar(&f.replace, "replace", false, "replace an existing schedule of this name")
	f.job.Add(flags)
	f.job.AddFile(flags)
	return jobflags.Grouped(cmd)
}

func addSchedule(shell cli.Shell, cmd *cobra.Command, args []string, f addFlags) error {
	before, command := input.SplitDash(cmd.Flags(), args)
	if len(before) == 0 {
		return cli.Usage("penstock schedule add NAME …", "the schedule's name is missing before --")
	}
	job, err := jobflags.Describe(shell, before[1:], command, f.job)
	if err != nil {
		return err
	}
	s := calendar.Schedule{
		Name: before[0], Cron: f.cron, Every: jobs.Duration(f.every), Timezone: f.timezone,
		Missed: calendar.Missed(f.missed), Grace: jobs.Duration(f.grace), Overlap: calendar.Overlap(f.overlap), Job: job,
	}.WithDefaults()
	if err := s.Validate(); err != nil {
		return err
	}
	if f.job.DryRun {
		if *shell.Format == cli.Table {
			*shell.Format = cli.YAML
		}
		return view.One(shell.Out, *shell.Format, stateOf(calendar.New(s, time.Now())))
	}
	return withCalendar(cmd.Context(), shell, "schedule", func(p *pool.Pool) error {
		put := p.Client.Schedules().Add
		if f.replace {
			put = p.Client.Schedules().Replace
		}
		rec, err := put(cmd.Context(), s)
		if err != nil {
			return err
		}
		sayUnserved(shell, p, "the schedule fires")
		return view.One(shell.Out, *shell.Format, stateOf(rec))
	})
}

func missedWords() []string { return input.Strings(calendar.MissedOnce, calendar.MissedSkip) }

func overlapWords() []string { return input.Strings(calendar.OverlapSkip, calendar.OverlapAllow) }
