package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
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
	var what purgeSelection
	var session, dry, yes bool
	cmd := &cobra.Command{
		Use: "purge [ID…]", Short: "Remove all that is kept of finished jobs, for good",
		Long: `Purge removes records, requests, keys, events, results, artifacts, salvages,
conversations and dead letters of jobs. Only finished jobs are purged, and only an
operator may. Nothing brings them back, but a backup has them. After an interruption
run it again: it goes on where it was.

Jobs are named by their ids, or selected by batch, queue, labels and the time of their
end; several selections must all apply. The jobs of one customer are, as a rule, those
with a label owner. A selection only counts the jobs, unless --yes is given; --dry-run
lists them, too. If one of them has not finished, nothing is removed; with
--finished-before such jobs are not selected.

Events of a session belong to all of its jobs. A job that is not the only one of its
session is refused, unless --session is given, which purges the others, too.

The audit log and the log of webhook deliveries keep the ids of the jobs. The files of
the broker keep what was removed until it writes them anew: penstock nats compact.
Results that were saved or delivered elsewhere are yours to remove.`,
		Example: `  penstock job purge 0193f1c2
  penstock job purge --batch nightly-7 --yes
  penstock job purge --label owner=ann --finished-before 90d --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := what.prepare(args, time.Now()); err != nil {
				return err
			}
			ctx := cmd.Context()
			return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
				found, err := what.find(ctx, p, args, dry)
				if err != nil {
					return err
				}
				switch {
				case dry:
					shell.Progressf("would purge %s", found)
					return jobview.Records.List(shell.Out, *shell.Format, found.records)
				case len(args) == 0 && !yes:
					return cli.Usage("repeat it with --yes to remove them for good, or with --dry-run to list them", "job purge: nothing was removed: it would purge %s", found)
				}
				return purgeAll(ctx, shell, p, found.sessions(), session)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&what.Batch, "batch", "", "all jobs of this batch")
	flags.StringVar(&what.Queue, "queue", "", "all jobs of this queue")
	flags.StringArrayVar(&what.labels, "label", nil, "all jobs with this label, k=v, or k with any value (repeatable)")
	flags.StringVar(&what.finishedBefore, "finished-before", "", "only jobs that finished before this time (RFC 3339), or longer ago than this (as in 90d)")
	flags.BoolVar(&session, "session", false, "also the other jobs of each session")
	flags.BoolVar(&dry, "dry-run", false, "only count and list the jobs")
	flags.BoolVar(&yes, "yes", false, "remove what was selected")
	return cmd
}

const (
	// purgesAtOnce is how many sessions are purged at the same time.
	purgesAtOnce = 8
	// purgesTold is how often a long purge says how far it has come.
	purgesTold = 2 * time.Second
)

// purgeAll purges the jobs of each list one after the other, and several lists at a time. With an
// error it still shows what was purged.
func purgeAll(ctx context.Context, shell cli.Shell, p *pool.Pool, lists [][]string, session bool) error {
	var mu sync.Mutex
	var all []operation.Purged
	done, told := 0, time.Now()
	note := func(purged operation.Purged) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, purged)
		if done += len(purged.Jobs); time.Since(told) > purgesTold {
			told = time.Now()
			shell.Progressf("purged %d jobs, of %d sessions %d", done, len(lists), len(all))
		}
	}
	g, under := errgroup.WithContext(ctx)
	g.SetLimit(purgesAtOnce)
	for _, ids := range lists {
		if under.Err() != nil {
			break
		}
		g.Go(func() error {
			var gone []string // with another job of the session
			for _, id := range ids {
				if slices.Contains(gone, id) {
					continue
				}
				purged, err := p.Client.Purge(under, id, session)
				if err != nil {
					return fmt.Errorf("job purge: %w", err)
				}
				gone = append(gone, purged.Jobs...)
				note(purged)
			}
			return nil
		})
	}
	err := g.Wait()
	if err == nil {
		err = ctx.Err()
	}
	return errors.Join(err, purgedView.List(shell.Out, *shell.Format, all))
}
