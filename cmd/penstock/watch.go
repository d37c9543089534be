package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
)

func (a *app) watchCommand() *cobra.Command {
	var from uint64
	cmd := &cobra.Command{
		Use: "watch ID", Short: "Show a session live, from its beginning, until its job has finished",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withJob(cmd.Context(), args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				return a.follow(ctx, p, rec, from)
			})
		},
	}
	cmd.Flags().Uint64Var(&from, "since", 1, "sequence number of the first event")
	return cmd
}

func (a *app) logsCommand() *cobra.Command {
	var from uint64
	var follow bool
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print a session's events as they are stored now",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withJob(cmd.Context(), args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				if follow {
					return a.follow(ctx, p, rec, from)
				}
				none := from <= 1
				for event, err := range p.Client.Events(ctx, rec.ID, before(from)) {
					if err != nil {
						return fmt.Errorf("read session %s: %w", rec.Session, err)
					}
					if err := a.show(event); err != nil {
						return err
					}
					none = false
				}
				if none {
					return a.tellSilentEnd(ctx, p, rec.ID)
				}
				return nil
			})
		},
	}
	cmd.Flags().Uint64Var(&from, "since", 1, "sequence number of the first event")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the job has finished")
	return cmd
}

func (a *app) waitCommand() *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "wait ID…", Short: "Wait until jobs have finished; the exit code is that of the worst outcome",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := pool.Within(cmd.Context(), limit)
			defer cancel()
			p, err := pool.Open(ctx, a.shell(), "wait", pool.Hooks{})
			if err != nil {
				return err
			}
			var results []jobs.Result
			for _, id := range args {
				result, waited := a.await(ctx, p, id)
				if err = pool.Cause(ctx, waited); err != nil {
					break
				}
				results = append(results, result)
			}
			err = errors.Join(err, resultView.List(a.out, a.format, results), p.Close())
			return outcome(err, results...)
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this long; the jobs continue")
	return cmd
}

// await waits until a job has finished and returns its result.
func (a *app) await(ctx context.Context, p *pool.Pool, id string) (jobs.Result, error) {
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		return jobs.Result{}, fmt.Errorf("job %s: %w", id, err)
	}
	if err := checkServed(p, rec); err != nil {
		return jobs.Result{}, err
	}
	p.Outlast(a.shell())
	// The log's last event is written after the record. A user who has waited for a job
	// should find it there.
	for _, err := range p.Client.Follow(ctx, rec.ID, 0) {
		if err != nil {
			return jobs.Result{}, fmt.Errorf("follow job %s: %w", rec.ID, err)
		}
	}
	return p.Client.Result(ctx, rec.ID)
}

// checkServed refuses to wait for a job that will never run: if this command had to open the
// data directory's broker itself, no pool is running.
func checkServed(p *pool.Pool, rec jobs.Record) error {
	if !p.Own() || rec.State == jobs.Finished {
		return nil
	}
	return cli.Fail(cli.ExitUnreachable, "penstock serve --slots 2 runs one", "no pool runs on this data directory, so job %s stays %s", rec.ID, rec.State)
}

// withJob opens the pool, finds a job by its id or the beginning of it, and
// closes the pool again.
func (a *app) withJob(ctx context.Context, id string, fn func(context.Context, *pool.Pool, jobs.Record) error) error {
	p, err := pool.Open(ctx, a.shell(), "read", pool.Hooks{})
	if err != nil {
		return err
	}
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		err = fmt.Errorf("job %s: %w", id, err)
		if errors.Is(err, jobs.ErrNotFound) {
			err = cli.Fail(cli.ExitNotFound, "penstock job ls lists the jobs that are kept", "%w", err)
		}
	} else {
		err = fn(ctx, p, rec)
	}
	return errors.Join(err, p.Close())
}

// follow shows a session until its job has finished.
func (a *app) follow(ctx context.Context, p *pool.Pool, rec jobs.Record, from uint64) error {
	if err := checkServed(p, rec); err != nil {
		return err
	}
	p.Outlast(a.shell())
	ended := false
	for event, err := range p.Client.Follow(ctx, rec.ID, before(from)) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return pool.Cause(ctx, fmt.Errorf("follow session %s: %w", rec.Session, err))
		}
		if err := a.show(event); err != nil {
			return err
		}
		ended = ended || event.Job == rec.ID && event.Kind == jobs.JobFinished
	}
	if ctx.Err() != nil {
		return cli.Fail(cli.ExitInterrupted, "", "interrupted; the job continues")
	}
	if !ended && from <= 1 {
		return a.tellSilentEnd(ctx, p, rec.ID)
	}
	return nil
}

// before is the number of the event that stands before one in its session.
func before(from uint64) uint64 { return max(from, 1) - 1 }

// tellSilentEnd reports how a job ended if its log does not contain the end.
func (a *app) tellSilentEnd(ctx context.Context, p *pool.Pool, id string) error {
	rec, err := p.Client.Get(ctx, id)
	if err != nil {
		return fmt.Errorf("job %s: %w", id, err)
	}
	if rec.State == jobs.Finished {
		a.err.Printf("penstock: job %s has finished: %s; its log does not have the end, which may be older than the retention of events\n", rec.ID, rec.Outcome)
	}
	return nil
}

// show prints one event: as JSON for programs, as a line for people.
func (a *app) show(event jobs.Event) error {
	if a.format != cli.Table {
		return cli.View[jobs.Event]{}.One(a.out, cli.JSONL, event)
	}
	return a.tellPerson(a.out, event)
}

// tellPerson shows an event as a terminal can show it, or as lines.
func (a *app) tellPerson(w *console.Writer, event jobs.Event) error {
	if !w.Rich() {
		return describe(w, event)
	}
	if a.screen == nil {
		a.screen = transcript.New(w, summary)
	}
	return a.screen.Show(event)
}

// outcome turns results into the error that has their exit code. A command
// that failed for another reason keeps that one.
func outcome(err error, results ...jobs.Result) error {
	if err != nil {
		return err
	}
	counts := map[jobs.Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	code := cli.OutcomeCode(counts)
	if code == cli.ExitOK {
		return nil
	}
	for _, r := range results {
		if r.Outcome != jobs.Success && r.Outcome != jobs.Skip {
			return cli.Fail(code, jobs.Reasons[r.Reason].Advice, "job %s: %s (%s): %s", r.Job, r.Outcome, r.Reason, r.Message)
		}
	}
	return nil
}

// describe writes an event for a person: one line, or a few of a message.
func describe(w *console.Writer, e jobs.Event) error {
	line := summary(e)
	if line == "" {
		return nil
	}
	lines := console.Block(line)
	if len(lines) == 0 {
		return nil
	}
	text := fmt.Sprintf("%s %5d  %s\n", e.Time.Local().Format("15:04:05.000"), e.Seq, lines[0])
	for _, line := range lines[1:] {
		if !strings.HasPrefix(line, "  ") {
			line = "  " + line // whatever it says, it is no line of ours
		}
		text += line + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
