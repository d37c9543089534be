// Package tries runs one job several times in a batch of its own, so that the best can be kept.
//
//	job, N ─Make─▶ N jobs on one commit ─Submit─▶ a batch ─Best─▶ the row of the best, when they have ended
package tries

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/variants"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/worker/checkout"
)

// AddFlag adds the flag that says how often a job runs.
func AddFlag(flags *pflag.FlagSet, n *int) {
	flags.IntVar(n, "best-of", 1, "run each job so often, and keep the best: by outcome, checks, size of the change, cost")
}

// item is the name of a job that has none, in the names of its tries.
const item = "job"

// Check refuses a number of tries that is not allowed.
func Check(n int) error {
	if n < 1 || n > variants.MostTries {
		return cli.Usage("", "--best-of: %d is not between 1 and %d", n, variants.MostTries)
	}
	return nil
}

// Make makes n jobs of one, each on the same commit: a branch that moves meanwhile would make results
// that cannot be compared. One stays as it is.
func Make(ctx context.Context, job jobs.Job, n int) ([]jobs.Job, error) {
	if n == 1 {
		return []jobs.Job{job}, nil
	}
	if jobflags.Pinned(job) {
		commit, err := checkout.Resolve(ctx, job.Repo.URL, job.Repo.Ref, os.Environ())
		if err != nil {
			return nil, cli.Usage("name a full commit with --ref", "no commit to begin the tries from: %w", err)
		}
		job.Repo.Commit = commit
	}
	if job.Batch == "" {
		job.Batch = jobs.NewID()
		if job.Key != "" { // the same key gives the same batch
			job.Batch = uuid.NewSHA1(uuid.NameSpaceOID, []byte("best-of/"+job.Key)).String()
		}
	}
	all, err := variants.Tries([]intake.Item{{ID: cmp.Or(job.Item, item), Job: job}}, n)
	if err != nil {
		return nil, cli.Usage("", "--best-of: %w", err)
	}
	var list []jobs.Job
	for i, try := range all {
		if try.Err != nil {
			return nil, cli.Usage("", "--best-of: %w", try.Err)
		}
		if job.Key != "" {
			try.Job.Key = fmt.Sprintf("%s-try%d", job.Key, i+1)
		}
		list = append(list, try.Job)
	}
	return list, nil
}

// Submit submits the jobs. Where one is refused, those before it stay in the pool.
func Submit(ctx context.Context, shell cli.Shell, p *pool.Pool, list []jobs.Job, strictKey bool) ([]operation.Submitted, error) {
	var answers []operation.Submitted
	for _, job := range list {
		answer, err := jobflags.Submit(ctx, shell, p, job, strictKey)
		if err != nil && len(answers) > 0 {
			return answers, fmt.Errorf("%w (%d of %d tries are submitted; penstock batch cancel %s ends them)", err, len(answers), len(list), job.Batch)
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// Best returns what the best of a batch's tries came to, and which one it is.
func Best(ctx context.Context, p *pool.Pool, batch string) (report.Item, error) {
	r, err := p.Client.Batches().Report(ctx, batch)
	if err != nil {
		return report.Item{}, fmt.Errorf("batch %s: %w", batch, err)
	}
	for _, row := range r.Rows {
		if row.Best {
			return row, nil
		}
	}
	return report.Item{}, fmt.Errorf("batch %s: none of its tries has ended", batch)
}
