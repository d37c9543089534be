package workercmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/why"
)

var view = cli.View[why.Worker]{
	Header: []string{"WORKER", "STATE", "BUSY", "SLOTS", "QUEUES", "LABELS", "STARTED", "NOTE"},
	Row: func(w why.Worker) []string {
		return []string{
			w.Name, string(w.State), strconv.Itoa(w.Busy), strconv.Itoa(w.Slots), strings.Join(w.Queues, ","), strings.Join(w.Labels, ","),
			w.Started.Local().Format(time.RFC3339), note(w),
		}
	},
	ID: func(w why.Worker) string { return w.Name },
}

// note says why a worker claims nothing, or soon will claim nothing.
func note(w why.Worker) string {
	if w.Drain != nil && !w.Drain.Confirmed && w.Closed == "" {
		return fmt.Sprintf("%s asked it to drain, which it has not confirmed", w.Drain.By)
	}
	return w.Closed
}

func ls(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the workers that are alive", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pool.List(cmd.Context(), shell, view, func(ctx context.Context, p *pool.Pool) ([]why.Worker, error) { return p.Client.Workers(ctx) })
		},
	}
}

func get(shell cli.Shell) *cobra.Command {
	return &cobra.Command{
		Use: "get WORKER", Short: "Show a worker that is alive", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
				w, err := p.Client.Worker(args[0]).Get(ctx)
				if err != nil {
					return explain(ctx, p, args[0], err)
				}
				return view.One(shell.Out, *shell.Format, w)
			})
		},
	}
}

// explain adds to the error that no worker has a name which of them was meant.
func explain(ctx context.Context, p *pool.Pool, name string, err error) error {
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	hint := "penstock worker ls lists those that are alive"
	if workers, err := p.Client.Workers(ctx); err == nil { // a role that may not ask has the hint alone
		var known []string
		for _, w := range workers {
			known = append(known, w.Name)
		}
		if like := input.Like(name, known); like != "" {
			hint = fmt.Sprintf("did you mean %s? %s", like, hint)
		}
	}
	return cli.Fail(cli.ExitNotFound, hint, "there is no worker %q that is alive", name)
}
