// Package costcmd adds up what jobs have cost, by what they have in common: the command cost.
package costcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A cost is what the jobs of one group have used.
type cost struct {
	Name string `json:"name" yaml:"name"` // of the group; empty: they have none of what it is by
	Jobs int    `json:"jobs" yaml:"jobs"`
	// Usage and USD are of all attempts, also those that go on.
	Usage jobs.Usage `json:"usage" yaml:"usage"`
	USD   float64    `json:"cost_usd" yaml:"cost_usd"`
}

var view = cli.View[cost]{
	Header: []string{"NAME", "JOBS", "COST", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE"},
	Row: func(c cost) []string {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		return []string{
			cmp.Or(c.Name, "-"), strconv.Itoa(c.Jobs), fmt.Sprintf("$%.4f", c.USD),
			number(c.Usage.Input), number(c.Usage.Output), number(c.Usage.CacheRead), number(c.Usage.CacheWrite),
		}
	},
	ID: func(c cost) string { return c.Name },
}

// The words of --by, but for the model, which only a job's result has.
var groups = map[string]func(jobs.Record) string{
	"queue": func(r jobs.Record) string { return r.Queue },
	"agent": func(r jobs.Record) string { return r.Agent },
	"batch": func(r jobs.Record) string { return r.Batch },
	"day":   day,
}

// day is when a job was last claimed, or submitted if it never was: the day, by UTC, on
// which most of its cost arose.
func day(r jobs.Record) string {
	at := r.Submitted
	if r.Claimed != nil {
		at = *r.Claimed
	}
	return at.UTC().Format(time.DateOnly)
}

// New returns the command cost.
func New(shell cli.Shell) *cobra.Command {
	var r operation.ListRequest
	var by, since, job string
	var budgets bool
	cmd := &cobra.Command{
		Use: "cost", Short: "Show what jobs have cost, by queue, agent, model, batch or day, and what is left of budgets", Args: cobra.NoArgs,
		Long: `Cost adds up what the jobs have cost that the pool still keeps, with all their attempts, the
dearest group first. It is what the workers' gates have counted, by list prices or those of
the setting prices; what did not go through a gate is what agents have told. A job counts for
the day on which its last attempt began.

With --budgets it shows the budgets that jobs share instead (serve --budget), with --batch
also that of a batch, and with --job that of a job: what may be spent, what was, and what is
left until the next period.`,
		Example: `  penstock cost --by model --since 7d
  penstock cost --by day --queue nightly -o json
  penstock cost --budgets --job ID`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if budgets || job != "" {
				return showBudgets(cmd.Context(), shell, operation.BudgetRequest{Batch: r.Batch, Job: job})
			}
			if since != "" {
				at, err := input.Past(since, time.Now())
				if err != nil {
					return cli.Usage("", "--since: %w", err)
				}
				r.Since = &at
			}
			return pool.List(cmd.Context(), shell, view, func(ctx context.Context, p *pool.Pool) ([]cost, error) { return read(ctx, p, r, by) })
		},
	}
	flags := cmd.Flags()
	by = "queue"
	flags.Var(input.OneOf(&by, "queue", "agent", "model", "batch", "day"), "by", "what the jobs of a group have in common: queue, agent, model, batch or day")
	flags.StringVar(&since, "since", "", "only jobs that were submitted since a time, or so long ago: 2h, 7d, 2027-01-02T15:04:05Z")
	flags.StringVar(&r.Queue, "queue", "", "only jobs of this queue")
	flags.StringVar(&r.Batch, "batch", "", "only jobs of this batch")
	flags.BoolVar(&budgets, "budgets", false, "show what is left of the budgets that jobs share; with --batch also of that batch's")
	flags.StringVar(&job, "job", "", "show what is left of this job's own budget, beside those that jobs share; of one that runs, as of its last heartbeat")
	for _, other := range []string{"by", "since", "queue"} {
		cmd.MarkFlagsMutuallyExclusive("budgets", other)
		cmd.MarkFlagsMutuallyExclusive("job", other)
	}
	return cmd
}

// read adds up the costs of jobs.
func read(ctx context.Context, p *pool.Pool, r operation.ListRequest, by string) ([]cost, error) {
	records, err := pool.Collect(p.Client.List(ctx, r))
	if err != nil {
		return nil, err
	}
	group := groups[by]
	if by == "model" {
		if group, err = models(ctx, p, records); err != nil {
			return nil, err
		}
	}
	return sum(records, group), nil
}

// sum adds up records by their groups, the dearest first.
func sum(records []jobs.Record, group func(jobs.Record) string) []cost {
	at, all := map[string]int{}, []cost{}
	for _, rec := range records {
		name := group(rec)
		i, known := at[name]
		if !known {
			i = len(all)
			at[name] = i
			all = append(all, cost{Name: name})
		}
		spent := rec.SpentBefore.Add(rec.LastAttempt)
		all[i].Jobs++
		all[i].Usage, all[i].USD = all[i].Usage.Add(spent.Usage), jobs.AddUSD(all[i].USD, spent.CostUSD)
	}
	slices.SortFunc(all, func(a, b cost) int { return cmp.Or(cmp.Compare(b.USD, a.USD), cmp.Compare(a.Name, b.Name)) })
	return all
}

// atOnce is how many results are read at the same time.
const atOnce = 16

// models returns the model of each job that has ended and used anything.
func models(ctx context.Context, p *pool.Pool, records []jobs.Record) (func(jobs.Record) string, error) {
	names := make([]string, len(records))
	of := map[string]int{}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, rec := range records {
		of[rec.ID] = i
		if rec.State != jobs.Finished || rec.SpentBefore.Add(rec.LastAttempt) == (jobs.Spent{}) {
			continue
		}
		g.Go(func() error {
			result, err := p.Client.Result(ctx, rec.ID)
			if err != nil && !errors.Is(err, jobs.ErrNotFound) {
				return fmt.Errorf("result of job %s: %w", rec.ID, err)
			}
			names[i] = result.Model
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return func(r jobs.Record) string { return names[of[r.ID]] }, nil
}
