package jobcmd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

// filter is what job ls selects, and how it lists that.
type filter struct {
	operation.ListRequest
	state, outcome, review, since, sort string
	labels                              []string
	limit                               int
	watch                               bool
}

// orders are the words of --sort, each with what decides.
var orders = map[string]func(a, b jobs.Record) int{
	"submitted": func(a, b jobs.Record) int { return a.Submitted.Compare(b.Submitted) },
	"finished":  func(a, b jobs.Record) int { return ended(a).Compare(ended(b)) },
	"state":     func(a, b jobs.Record) int { return cmp.Compare(a.State, b.State) },
	"outcome":   func(a, b jobs.Record) int { return cmp.Compare(a.Outcome, b.Outcome) },
	"queue":     func(a, b jobs.Record) int { return cmp.Compare(a.Queue, b.Queue) },
	"item":      func(a, b jobs.Record) int { return cmp.Compare(a.Item, b.Item) },
	"title":     func(a, b jobs.Record) int { return cmp.Compare(a.Title, b.Title) },
}

// ended is when a job finished; one that has not stands behind all that have.
func ended(r jobs.Record) time.Time {
	if r.Finished == nil {
		return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return *r.Finished
}

func ls(shell cli.Shell) *cobra.Command {
	var f filter
	cmd := &cobra.Command{
		Use: "ls", Short: "List jobs, the newest last", Args: cobra.NoArgs,
		Example: `  penstock job ls --state executing -w
  penstock job ls --outcome failure --since 24h --label team=web --limit 20`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.prepare(time.Now()); err != nil {
				return err
			}
			if f.watch {
				return watchJobs(cmd.Context(), shell, f)
			}
			return pool.List(cmd.Context(), shell, jobview.Records, func(ctx context.Context, p *pool.Pool) ([]jobs.Record, error) {
				found, err := p.Jobs(ctx, f.ListRequest)
				return f.choose(found), err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Batch, "batch", "", "only jobs of this batch")
	flags.StringVar(&f.Queue, "queue", "", "only jobs of this queue")
	flags.Var(input.OneOf(&f.state, states()...), "state", "only jobs in this state: pending, delayed, executing, waiting or finished")
	flags.Var(input.OneOf(&f.outcome, outcomes()...), "outcome", "only jobs with this outcome: success, failure, error, timeout, cancellation or skip")
	flags.Var(input.OneOf(&f.review, "unreviewed", "accepted", "rejected", "delivered"), "review", "only finished jobs whose result is unreviewed, accepted, rejected or delivered")
	flags.StringArrayVar(&f.labels, "label", nil, "only jobs with this label, k=v, or k with any value (repeatable)")
	flags.StringVar(&f.since, "since", "", "only jobs submitted after this time (RFC 3339), or within this duration (as in 2h)")
	flags.IntVar(&f.limit, "limit", 0, "only the last so many jobs")
	flags.Var(input.OneOf(&f.sort, sortWords()...), "sort", "by submitted (default), finished, state, outcome, queue, item or title")
	flags.BoolVarP(&f.watch, "watch", "w", false, "continue with each change, until interrupted")
	return cmd
}

func sortWords() []string {
	return []string{"submitted", "finished", "state", "outcome", "queue", "item", "title"}
}

// prepare reads what the flags say.
func (f *filter) prepare(now time.Time) error {
	f.State, f.Review = jobs.State(f.state), jobs.ReviewState(f.review)
	if f.watch && (f.limit > 0 || f.sort != "") {
		return cli.Usage("", "--watch prints each change as it happens: --limit and --sort do not apply")
	}
	since, err := input.Past(f.since, now)
	if err != nil {
		return cli.Usage("", "--since: %w", err)
	}
	if !since.IsZero() {
		f.Since = &since
	}
	return nil
}

func (f *filter) match(r jobs.Record) bool {
	if f.outcome != "" && string(r.Outcome) != f.outcome {
		return false
	}
	return (f.review == "" || string(r.Reviewed()) == f.review) && labelled(r, f.labels)
}

// labelled reports whether a job has all labels: k=v, or k with any value.
func labelled(r jobs.Record, labels []string) bool {
	return !slices.ContainsFunc(labels, func(label string) bool {
		name, value, given := strings.Cut(label, "=")
		got, has := r.Labels[name]
		return !has || given && got != value
	})
}

// choose filters and sorts the jobs; --limit keeps the last.
func (f *filter) choose(found []jobs.Record) []jobs.Record {
	found = slices.DeleteFunc(found, func(r jobs.Record) bool { return !f.match(r) })
	if order := orders[f.sort]; order != nil {
		slices.SortStableFunc(found, order)
	}
	if f.limit > 0 && len(found) > f.limit {
		found = found[len(found)-f.limit:]
	}
	return found
}

// watchJobs lists each job as it is now, and again when it changes.
func watchJobs(ctx context.Context, shell cli.Shell, f filter) error {
	p, err := pool.Open(ctx, shell, "read", pool.Hooks{})
	if err != nil {
		return err
	}
	// One that leaves the state that was asked for is a change, too.
	all := record.Filter{Batch: f.Batch, Queue: f.Queue}
	if f.Since != nil {
		all.Since = *f.Since
	}
	seen := map[string]bool{}
	for rec, told := range p.Watch(ctx, all) {
		if err = told; err != nil || ctx.Err() != nil {
			break
		}
		fits := f.match(rec) && (f.State == "" || rec.State == f.State)
		if !fits && !seen[rec.ID] {
			continue
		}
		if seen[rec.ID] = fits; *shell.Format == cli.Table {
			err = shell.Out.Row(console.Span{Text: strings.Join(jobview.Records.Row(rec), "  ")})
		} else {
			err = jobview.Records.List(shell.Out, cli.JSONL, []jobs.Record{rec})
		}
		if err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		err = cli.Fail(cli.ExitInterrupted, "", "interrupted; the jobs continue")
	}
	return errors.Join(err, p.Close())
}
