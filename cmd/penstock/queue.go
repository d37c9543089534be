package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

func (a *app) queueCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "queue", Short: "Show, pause and resume queues"}
	cmd.AddCommand(a.queueLs(), a.queueCaps(), a.queueDrain(),
		a.holdCommand(jobs.HoldQueue, "QUEUE", func(name string) string { return name }),
		a.resumeCommand(jobs.HoldQueue, "QUEUE", func(name string) string { return name }))
	return cmd
}

var queueView = cli.View[operation.Queue]{
	Header: []string{"QUEUE", "PENDING", "DELAYED", "EXECUTING", "WAITING", "FINISHED", "CAP", "OLDEST", "PAUSED"},
	Row: func(s operation.Queue) []string {
		most, oldest := "", ""
		if s.Cap > 0 {
			most = strconv.Itoa(s.Cap)
		}
		if s.Oldest != nil {
			oldest = time.Since(*s.Oldest).Truncate(time.Second).String()
		}
		return []string{
			s.Queue, strconv.Itoa(s.Pending), strconv.Itoa(s.Delayed), strconv.Itoa(s.Executing), strconv.Itoa(s.Waiting),
			strconv.Itoa(s.Finished), most, oldest, pausedWords(s.Paused),
		}
	},
	ID: func(s operation.Queue) string { return s.Queue },
}

func pausedWords(h *jobs.Hold) string {
	switch {
	case h == nil:
		return ""
	case h.Cancel:
		return "cancelled"
	case h.Until != nil:
		return "until " + h.Until.Local().Format(time.RFC3339)
	}
	return "until it is resumed"
}

func (a *app) queueLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the queues, with their jobs, and which are paused", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return pool.List(cmd.Context(), a.shell(), queueView, func(ctx context.Context, p *pool.Pool) ([]operation.Queue, error) {
				return pool.Collect(p.Client.Queues().List(ctx))
			})
		},
	}
}

// holdCommand pauses something that has the argument's name.
func (a *app) holdCommand(kind jobs.HoldKind, arg string, name func(string) string) *cobra.Command {
	var limit time.Duration
	var force bool
	cmd := &cobra.Command{
		Use: "pause " + arg, Args: cobra.ExactArgs(1),
		Short: fmt.Sprintf("Start no more jobs of a %s; running jobs continue", kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			h := jobs.Hold{Kind: kind, Name: name(args[0]), By: "cli"}
			if limit > 0 {
				until := time.Now().Add(limit).UTC()
				h.Until = &until
			}
			return a.changeHold(cmd.Context(), h, func(p *pool.Pool) error {
				if err := p.Exists(cmd.Context(), kind, h.Name); err != nil && !force {
					return err
				}
				return p.Hold(cmd.Context(), h)
			})
		},
	}
	cmd.Flags().DurationVar(&limit, "for", 0, "resume automatically after this long (default: only by the resume command)")
	cmd.Flags().BoolVar(&force, "force", false, fmt.Sprintf("also a %s that the pool does not know yet", kind))
	return cmd
}

func (a *app) resumeCommand(kind jobs.HoldKind, arg string, name func(string) string) *cobra.Command {
	return &cobra.Command{
		Use: "resume " + arg, Short: fmt.Sprintf("Start jobs of a paused %s again", kind), Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h := jobs.Hold{Kind: kind, Name: name(args[0])}
			return a.changeHold(cmd.Context(), h, func(p *pool.Pool) error {
				if err := p.Exists(cmd.Context(), kind, h.Name); err != nil {
					return err
				}
				var err error
				if kind == jobs.HoldBatch {
					_, err = p.Client.Batches().Resume(cmd.Context(), h.Name)
				} else {
					_, err = p.Client.Queues().Resume(cmd.Context(), h.Name)
				}
				return err
			})
		},
	}
}

var holdView = cli.View[jobs.Hold]{
	Header: []string{"KIND", "NAME", "BY", "PAUSED"},
	Row:    func(h jobs.Hold) []string { return []string{string(h.Kind), h.Name, h.By, pausedWords(&h)} },
	ID:     func(h jobs.Hold) string { return h.Name },
}

// changeHold does something to a hold, and lists those in force afterwards.
func (a *app) changeHold(ctx context.Context, h jobs.Hold, change func(*pool.Pool) error) error {
	if err := jobs.CheckToken(string(h.Kind), h.Name); err != nil {
		return cli.Usage("", "%w", err)
	}
	p, err := pool.Open(ctx, a.shell(), "read", pool.Hooks{})
	if err != nil {
		return err
	}
	var holds []jobs.Hold
	if err = change(p); err == nil {
		holds, err = p.Client.Queues().Holds(ctx)
	}
	if err == nil {
		err = holdView.List(a.out, a.format, holds)
	}
	return errors.Join(err, p.Close())
}
