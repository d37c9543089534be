// Package holds pauses and resumes what commands name: queues and batches.
package holds

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
)

// Words says how long a pause lasts; empty without one.
func Words(h *jobs.Hold) string {
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

// PauseCommand pauses something that has the argument's name.
func PauseCommand(shell cli.Shell, kind jobs.HoldKind, arg string, name func(string) string) *cobra.Command {
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
			return Change(cmd.Context(), shell, h, func(p *pool.Pool) error {
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

// ResumeCommand resumes something that has the argument's name.
func ResumeCommand(shell cli.Shell, kind jobs.HoldKind, arg string, name func(string) string) *cobra.Command {
	return &cobra.Command{
		Use: "resume " + arg, Short: fmt.Sprintf("Start jobs of a paused %s again", kind), Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h := jobs.Hold{Kind: kind, Name: name(args[0])}
			return Change(cmd.Context(), shell, h, func(p *pool.Pool) error {
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

var view = cli.View[jobs.Hold]{
	Header: []string{"KIND", "NAME", "BY", "PAUSED"},
	Row:    func(h jobs.Hold) []string { return []string{string(h.Kind), h.Name, h.By, Words(&h)} },
	ID:     func(h jobs.Hold) string { return h.Name },
}

// Change does something to a hold, and lists those in force afterwards.
func Change(ctx context.Context, shell cli.Shell, h jobs.Hold, change func(*pool.Pool) error) error {
	if err := jobs.CheckToken(string(h.Kind), h.Name); err != nil {
		return cli.Usage("", "%w", err)
	}
	return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
		if err := change(p); err != nil {
			return err
		}
		holds, err := p.Client.Queues().Holds(ctx)
		if err != nil {
			return err
		}
		return view.List(shell.Out, *shell.Format, holds)
	})
}
