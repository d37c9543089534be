package queuecmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/record"
)

func drain(shell cli.Shell) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "drain QUEUE", Short: "Pause a queue, and wait until none of its jobs is running", Args: cobra.ExactArgs(1),
		Long: `Drain stops starting jobs of a queue, and returns when the running ones have ended.
The other jobs keep waiting until penstock queue resume.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := pool.Within(cmd.Context(), limit)
			defer cancel()
			h := jobs.Hold{Kind: jobs.HoldQueue, Name: args[0], By: "cli"}
			err := holds.Change(ctx, shell, h, func(p *pool.Pool) error {
				if err := p.Exists(ctx, h.Kind, h.Name); err != nil {
					return err
				}
				if err := p.Hold(ctx, h); err != nil {
					return err
				}
				return awaitDrained(ctx, p, h.Name)
			})
			if err != nil {
				err = pool.Cause(ctx, err) // the limit may end a request
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&limit, "timeout", 0, "give up after this long; the queue stays paused")
	return cmd
}

// awaitDrained waits until no job of a queue runs.
func awaitDrained(ctx context.Context, p *pool.Pool, name string) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	running, known := map[string]bool{}, false
	settled := func() bool { return known && len(running) == 0 }
	f := record.Filter{Queue: name}
	f.Caught = func() {
		if known = true; settled() {
			done()
		}
	}
	for rec, err := range p.Watch(ctx, f) {
		if settled() {
			return nil
		}
		if err != nil {
			return err
		}
		if delete(running, rec.ID); rec.State == jobs.Executing {
			running[rec.ID] = true
		}
		if settled() {
			return nil
		}
	}
	if settled() {
		return nil
	}
	return errors.Join(ctx.Err(), cli.Fail(cli.ExitInterrupted, "penstock queue resume "+name+" resumes it", "interrupted; the queue stays paused"))
}
