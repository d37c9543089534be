package jobcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/sessionview"
	"github.com/penstock-run/penstock/jobs"
)

// NewWatch returns the command watch.
func NewWatch(shell cli.Shell) *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Show a session live, from its beginning, until its job has finished",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				return follow(ctx, shell, p, rec, from)
			})
		},
	}
	cmd.Flags().Uint64Var(&from, "since", 1, "sequence number of the first event")
	return cmd
}

// NewLogs returns the command logs.
func NewLogs(shell cli.Shell) *cobra.Command {
	var from uint64
	var live bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print a session's events as they are stored now",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				if live {
					return follow(ctx, shell, p, rec, from)
				}
				none, err := stored(ctx, shell, p, rec, from)
				if err == nil && none && from <= 1 {
					return tellSilentEnd(ctx, shell, p, rec.ID)
				}
				return err
			})
		},
	}
	cmd.Flags().Uint64Var(&from, "since", 1, "sequence number of the first event")
	cmd.Flags().BoolVarP(&live, "follow", "f", false, "go on until the job has finished")
	return cmd
}

// stored shows the events that are stored now, and reports whether there are none. What they
// print is collected: a write for each costs more than to read it.
func stored(ctx context.Context, shell cli.Shell, p *pool.Pool, rec jobs.Record, from uint64) (none bool, err error) {
	out := bufio.NewWriterSize(shell.Out, 64<<10)
	defer func() { err = errors.Join(err, out.Flush()) }()
	none, show := true, show(shell, out)
	for event, err := range p.Client.Events(ctx, rec.ID, before(from)) {
		if err != nil {
			return none, fmt.Errorf("read session %s: %w", rec.Session, err)
		}
		if err := show(event); err != nil {
			return none, err
		}
		none = false
	}
	return none, nil
}

// NewWait returns the command wait.
func NewWait(shell cli.Shell) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "wait ID…", Short: "Wait until jobs have finished; the exit code is that of the worst outcome",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := pool.Within(cmd.Context(), limit)
			defer cancel()
			p, err := pool.Open(ctx, shell, "wait", pool.Hooks{})
			if err != nil {
				return err
			}
			var results []jobs.Result
			for _, id := range args {
				result, waited := await(ctx, shell, p, id)
				if err = pool.Cause(ctx, waited); err != nil {
					break
				}
				results = append(results, result)
			}
			err = errors.Join(err, jobview.Results.List(shell.Out, *shell.Format, results), p.Close())
			return jobview.Outcome(err, results...)
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this long; the jobs continue")
	return cmd
}

// await waits until a job has finished and returns its result.
func await(ctx context.Context, shell cli.Shell, p *pool.Pool, id string) (jobs.Result, error) {
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		return jobs.Result{}, fmt.Errorf("job %s: %w", id, err)
	}
	if err := pool.CheckServed(p, rec); err != nil {
		return jobs.Result{}, err
	}
	p.Outlast(shell)
	// The log's last event is written after the record. A user who has waited for a job
	// should find it there.
	for _, err := range p.Client.Follow(ctx, rec.ID, 0) {
		if err != nil {
			return jobs.Result{}, fmt.Errorf("follow job %s: %w", rec.ID, err)
		}
	}
	return p.Client.Result(ctx, rec.ID)
}

// follow shows a session until its job has finished.
func follow(ctx context.Context, shell cli.Shell, p *pool.Pool, rec jobs.Record, from uint64) error {
	if err := pool.CheckServed(p, rec); err != nil {
		return err
	}
	p.Outlast(shell)
	ended, show := false, show(shell, shell.Out)
	for event, err := range p.Client.Follow(ctx, rec.ID, before(from)) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return pool.Cause(ctx, fmt.Errorf("follow session %s: %w", rec.Session, err))
		}
		if err := show(event); err != nil {
			return err
		}
		ended = ended || event.Job == rec.ID && event.Kind == jobs.JobFinished
	}
	if ctx.Err() != nil {
		return cli.Fail(cli.ExitInterrupted, "", "interrupted; the job continues")
	}
	if !ended && from <= 1 {
		return tellSilentEnd(ctx, shell, p, rec.ID)
	}
	return nil
}

// before is the number of the event that stands before one in its session.
func before(from uint64) uint64 { return max(from, 1) - 1 }

// tellSilentEnd reports how a job ended if its log does not contain the end.
func tellSilentEnd(ctx context.Context, shell cli.Shell, p *pool.Pool, id string) error {
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	if rec.State == jobs.Finished {
		shell.Err.Printf("penstock: job %s has finished: %s; its log does not have the end, which may be older than the retention of events\n", rec.ID, rec.Outcome)
	}
	return nil
}

// show returns what prints events to out: as JSON for programs, as lines for people. A terminal
// that shows more than lines is written to directly.
func show(shell cli.Shell, out io.Writer) func(jobs.Event) error {
	screen := sessionview.New(shell.Out)
	screen.Collect(out)
	return func(event jobs.Event) error {
		if *shell.Format != cli.Table {
			return cli.View[jobs.Event]{}.One(out, cli.JSONL, event)
		}
		return screen.Show(event)
	}
}
