// Package reviewcmd is the command review: what a person does with the results of many jobs.
//
//	unreviewed results ─▶ one: checks, cost, diff ─▶ answer ─┬─ accept ─▶ work tree, branch, pull request
//	        ▲                                               ├─ reject ─▶ the agent goes on
//	        └──────────────────── next ◀────────────────────┴─ skip
//
// What was decided is in the pool, so that another call, or another person, goes on with
// what is left. Where standard input is no terminal the results are listed.
package reviewcmd

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// flags are those of the command.
type flags struct {
	accept, reject []string
	comment        string
	deliver        string
	dir            string
	all            bool
}

// New returns the command review.
func New(shell cli.Shell) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: "review [DIR|ID]", Short: "Decide about results, one after the other: accept them into your repository, or send them back", Args: cobra.MaximumNArgs(1),
		Long: `Review shows each unreviewed result, of a batch or of the whole pool:
its checks, what it cost, and its patch. You accept it, apply it to the work tree around
--dir, make a branch of it, have the pool open a pull request of the branch that it has
delivered, or reject it; a comment goes to its agent, which goes on with that. What you decide is kept in the pool. Without a terminal, or with -o json, the
results are listed; --accept and --reject decide without questions.`,
		Example: `  penstock review nightly-7
  penstock review --accept 0198c0de --deliver branch
  penstock review --reject 0198c0de --comment "Keep the old flag, too"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			decides := len(f.accept)+len(f.reject) > 0
			switch {
			case decides && len(args) > 0:
				return cli.Usage("leave it out", "--accept and --reject name jobs, not a batch")
			case f.comment != "" && len(f.reject) == 0:
				return cli.Usage("name a job with --reject", "--comment is for what is rejected")
			}
			return pool.With(cmd.Context(), shell, "read", func(p *pool.Pool) error {
				r := &reviewer{shell: shell, pool: p, flags: f}
				if decides {
					return r.decideAll(cmd.Context())
				}
				return r.review(cmd.Context(), args)
			})
		},
	}
	cmd.Flags().StringArrayVar(&f.accept, "accept", nil, "accept the result of this job (repeatable)")
	cmd.Flags().StringArrayVar(&f.reject, "reject", nil, "reject the result of this job (repeatable)")
	cmd.Flags().StringVar(&f.comment, "comment", "", "why it is rejected: the job's agent goes on with that")
	cmd.Flags().Var(input.OneOf(&f.deliver, "none", "apply", "branch", "pr"), "deliver", "where what --accept names goes: none (default), apply, branch, or pr: the pool opens a pull request of its branch")
	cmd.Flags().StringVar(&f.dir, "dir", ".", "directory in the work tree to apply results to, or in the repository of the branches")
	cmd.Flags().BoolVar(&f.all, "all", false, "also results of jobs that did not succeed")
	return cmd
}

// A reviewer decides about results.
type reviewer struct {
	shell cli.Shell
	pool  *pool.Pool
	flags flags
}

// view shows jobs with what was decided about their results.
var view = cli.View[jobs.Record]{
	Header: []string{"JOB", "BATCH", "ITEM", "OUTCOME", "REVIEW", "TITLE"},
	Row: func(r jobs.Record) []string {
		return []string{r.ID, r.Batch, r.Item, string(r.Outcome), string(r.Reviewed()), r.Title}
	},
	ID: jobview.Records.ID,
}

// waiting lists the unreviewed results.
func (r *reviewer) waiting(ctx context.Context, args []string) ([]jobs.Record, error) {
	wanted := operation.ListRequest{State: jobs.Finished, Outcome: jobs.Success, Review: jobs.Unreviewed}
	if r.flags.all {
		wanted.Outcome = ""
	}
	if len(args) > 0 {
		wanted.Batch = results.BatchID(args[0])
		if err := jobs.CheckToken("batch", wanted.Batch); err != nil {
			return nil, cli.Usage("name a batch, or the directory that batch run used as --out", "%w", err)
		}
	}
	return r.pool.Jobs(ctx, wanted)
}

// review asks about each result on a terminal, and lists them elsewhere.
func (r *reviewer) review(ctx context.Context, args []string) error {
	list, err := r.waiting(ctx, args)
	if err != nil {
		return err
	}
	if *r.shell.Format != cli.Table || !cli.IsTerminal(r.shell.In) || r.shell.Out.Terminal() == nil {
		return view.List(r.shell.Out, *r.shell.Format, list)
	}
	if err := r.ask(ctx, list); err != nil {
		return err
	}
	waiting, err := r.waiting(ctx, args)
	if err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, rec := range list {
		asked[rec.ID] = true
	}
	left := slices.DeleteFunc(waiting, func(rec jobs.Record) bool { return !asked[rec.ID] })
	r.shell.Err.Printf("penstock: %d of %d results are left\n", len(left), len(list))
	return nil
}

// decideAll does what the flags say, also after one that cannot be done.
func (r *reviewer) decideAll(ctx context.Context) error {
	var done []jobs.Record
	var errs []error
	each := func(ids []string, decide func(context.Context, jobs.Record) (jobs.Record, error)) {
		for _, id := range ids {
			rec, err := r.pool.Client.Get(ctx, id)
			if err == nil {
				rec, err = decide(ctx, rec)
			} else {
				err = cli.NotFound(err, "penstock review lists what is left")
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			done = append(done, rec)
		}
	}
	each(r.flags.accept, func(ctx context.Context, rec jobs.Record) (jobs.Record, error) {
		return r.accept(ctx, rec, r.flags.deliver)
	})
	each(r.flags.reject, func(ctx context.Context, rec jobs.Record) (jobs.Record, error) {
		return r.reject(ctx, rec, r.flags.comment)
	})
	return errors.Join(view.List(r.shell.Out, *r.shell.Format, done), errors.Join(errs...))
}
