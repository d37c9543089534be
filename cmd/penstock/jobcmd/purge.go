package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

var purgedView = cli.View[operation.Purged]{
	Header: []string{"SESSION", "JOBS", "REMOVED"},
	Row: func(p operation.Purged) []string {
		return []string{p.Session, strings.Join(p.Jobs, " "), strconv.Itoa(p.Removed)}
	},
	ID: func(p operation.Purged) string { return strings.Join(p.Jobs, "\n") },
}

// purge returns the command job purge.
func purge(shell cli.Shell) *cobra.Command {
	var batch string
	var session, dry bool
	cmd := &cobra.Command{
		Use: "purge [ID…]", Short: "Remove all that is kept of finished jobs, for good",
		Long: `Purge removes records, requests, keys, events, results, artifacts, salvages,
conversations and dead letters of jobs. Only finished jobs are purged, and only an
operator may. Nothing brings them back, but a backup has them. After an interruption
run it again: it goes on where it was.

Events of a session belong to all of its jobs. A job that is not the only one of its
session is refused, unless --session is given, which purges the others, too.

The audit log and the log of webhook deliveries keep the ids of the jobs. The files of
the broker keep what was removed until it writes them anew: penstock nats compact.
Results that were saved or delivered elsewhere are yours to remove.`,
		Example: `  penstock job purge 0193f1c2
  penstock job purge --batch nightly-7 --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 0) == (batch == "") {
				return cli.Usage("penstock job purge ID…, or --batch NAME", "job purge: name jobs, or a batch")
			}
			ctx := cmd.Context()
			return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
				found, err := toPurge(ctx, p, args, batch)
				if err != nil {
					return err
				}
				if dry {
					return jobview.Records.List(shell.Out, *shell.Format, found.records)
				}
				return purgeAll(ctx, shell, p, found.ids, session)
			})
		},
	}
	cmd.Flags().StringVar(&batch, "batch", "", "all jobs of this batch")
	cmd.Flags().BoolVar(&session, "session", false, "also the other jobs of each session")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only list the jobs")
	return cmd
}

// A selection is what is to be purged. A job whose record is gone has an id only.
type selection struct {
	ids     []string
	records []jobs.Record
}

// toPurge selects the jobs, and refuses all of them if one has not finished.
func toPurge(ctx context.Context, p *pool.Pool, args []string, batch string) (s selection, err error) {
	add := func(rec jobs.Record) error {
		if rec.State != jobs.Finished {
			return cli.Fail(cli.ExitUnexpected, "penstock job cancel "+rec.ID+", and purge it when it has ended", "job purge: job %s is %s: nothing was removed", rec.ID, rec.State)
		}
		s.ids, s.records = append(s.ids, rec.ID), append(s.records, rec)
		return nil
	}
	for _, id := range args {
		rec, err := p.Client.Get(ctx, id)
		if errors.Is(err, jobs.ErrNotFound) {
			s.ids = append(s.ids, id) // something of it may be left
			continue
		}
		if err == nil {
			err = add(rec)
		}
		if err != nil {
			return s, err
		}
	}
	if batch == "" {
		return s, nil
	}
	for rec, err := range p.Client.List(ctx, operation.ListRequest{Batch: batch}) {
		if err == nil {
			err = add(rec)
		}
		if err != nil {
			return s, err
		}
	}
	if len(s.ids) == 0 {
		return s, fmt.Errorf("batch %s: %w", batch, jobs.ErrNotFound)
	}
	return s, nil
}

func purgeAll(ctx context.Context, shell cli.Shell, p *pool.Pool, ids []string, session bool) error {
	var all []operation.Purged
	gone := map[string]bool{} // with another job of its session
	for _, id := range ids {
		if gone[id] {
			continue
		}
		purged, err := p.Client.Purge(ctx, id, session)
		if err != nil {
			return errors.Join(fmt.Errorf("job purge: %w", err), purgedView.List(shell.Out, *shell.Format, all))
		}
		for _, job := range purged.Jobs {
			gone[job] = true
		}
		all = append(all, purged)
	}
	return purgedView.List(shell.Out, *shell.Format, all)
}
