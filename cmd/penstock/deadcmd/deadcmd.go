// Package deadcmd shows, retries and drops jobs and submissions that failed for good.
package deadcmd

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

// New returns the command dead.
func New(shell cli.Shell) *cobra.Command {
	dead := &cobra.Command{Use: "dead", Short: "Show jobs and submissions that failed for good, and retry them"}
	dead.AddCommand(ls(shell), get(shell), retry(shell), drop(shell))
	return dead
}

// letterFilter selects dead letters: by name, or all that match.
type letterFilter struct {
	kind, queue, batch, reason string
	olderThan                  time.Duration
	all, dryRun                bool
}

func (f *letterFilter) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Var(input.OneOf(&f.kind, letterKinds()...), "kind", "only of this kind: job, submission or message")
	flags.StringVar(&f.queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&f.batch, "batch", "", "only jobs of this batch")
	flags.Var(input.OneOf(&f.reason, reasons()...), "reason", "only jobs that ended for this reason")
	flags.DurationVar(&f.olderThan, "older-than", 0, "only those that are at least this old")
}

// bulk adds the flags of a command that does something to letters.
func (f *letterFilter) bulk(cmd *cobra.Command) {
	f.flags(cmd)
	cmd.Flags().BoolVar(&f.all, "all", false, "all that the other flags select, instead of naming ids")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only list what would be done")
}

func (f *letterFilter) match(l jobs.DeadLetter) bool {
	return operation.DeadRequest{
		Kind: jobs.Letter(f.kind), Queue: f.queue, Batch: f.batch, Reason: jobs.Reason(f.reason), Older: jobs.Duration(f.olderThan),
	}.Selects(l)
}

// choose returns the letters with the given ids, or with --all those that match.
func (f *letterFilter) choose(letters []jobs.DeadLetter, ids []string) ([]jobs.DeadLetter, error) {
	if f.all == (len(ids) > 0) {
		return nil, cli.Usage("penstock dead ls lists them", "name dead letters by their ids, or select with --all")
	}
	var chosen []jobs.DeadLetter
	for _, id := range ids {
		l, err := letter(letters, id)
		if err != nil {
			return nil, err
		}
		chosen = append(chosen, l)
	}
	for _, l := range letters {
		if f.all && f.match(l) {
			chosen = append(chosen, l)
		}
	}
	return chosen, nil
}

// letter finds a dead letter by its id, or by the beginning that only it has.
func letter(letters []jobs.DeadLetter, id string) (jobs.DeadLetter, error) {
	found := jobs.MatchLetters(letters, id)
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return jobs.DeadLetter{}, cli.Fail(cli.ExitNotFound, "use more characters of the id", "%d dead letters begin with %q", len(found), id)
	}
	return jobs.DeadLetter{}, cli.Fail(cli.ExitNotFound, "penstock dead ls lists them", "there is no dead letter %q", id)
}

var view = cli.View[jobs.DeadLetter]{
	Header: []string{"AT", "KIND", "ID", "QUEUE", "BATCH", "ITEM", "REASON", "MESSAGE"},
	Row: func(l jobs.DeadLetter) []string {
		r := l.Record
		reason, message := l.Reason, r.Message
		if l.Kind != jobs.DeadJob {
			reason, message = "", cmp.Or(l.Reason, l.Subject)
		}
		return []string{l.At.Local().Format(time.RFC3339), string(l.Kind), l.ID, r.Queue, console.ShortID(r.Batch), r.Item, reason, visible.FirstLine(message)}
	},
	ID: func(l jobs.DeadLetter) string { return l.ID },
}

// withLetters opens the pool and reads its dead letters.
func withLetters(ctx context.Context, shell cli.Shell, fn func(p *pool.Pool, letters []jobs.DeadLetter) error) error {
	return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
		letters, err := pool.Collect(p.Client.DeadLetters().List(ctx, operation.DeadRequest{}))
		if err != nil {
			return err
		}
		return fn(p, letters)
	})
}

func ls(shell cli.Shell) *cobra.Command {
	filter := letterFilter{all: true}
	cmd := &cobra.Command{
		Use: "ls", Short: "List jobs that ended in an error, refused submissions and unknown messages", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withLetters(cmd.Context(), shell, func(_ *pool.Pool, letters []jobs.DeadLetter) error {
				chosen, err := filter.choose(letters, nil)
				if err != nil {
					return err
				}
				return view.List(shell.Out, *shell.Format, chosen)
			})
		},
	}
	filter.flags(cmd)
	return cmd
}

func get(shell cli.Shell) *cobra.Command {
	var last int
	cmd := &cobra.Command{
		Use: "get ID", Args: cobra.ExactArgs(1),
		Short: "Show a dead letter: the last error, what it means, the request and the last events",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLetters(cmd.Context(), shell, func(p *pool.Pool, letters []jobs.DeadLetter) error {
				l, err := letter(letters, args[0])
				if err != nil {
					return err
				}
				view, err := p.Client.DeadLetters().Get(cmd.Context(), l.ID, last)
				if err != nil {
					return err
				}
				if *shell.Format == cli.Table {
					*shell.Format = cli.YAML
				}
				return cli.View[operation.DeadShown]{ID: func(v operation.DeadShown) string { return v.ID }}.One(shell.Out, *shell.Format, view)
			})
		},
	}
	cmd.Flags().IntVar(&last, "events", 20, "how many of the last events to show")
	return cmd
}
