// Package tries runs one job several times in a batch of its own, with one agent or with several, so
// that the best can be kept.
//
//	job, agents, N ─Make─▶ agents × N jobs on one commit ─Submit─▶ a batch ─Best─▶ the best, when they have ended
package tries

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/variants"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/report"
	"github.com/penstock-run/penstock/worker/checkout"
)

// Flags say how often a job runs, and with which agents.
type Flags struct {
	Agents []string
	BestOf int
	read   []variants.Variant
}

// Add adds the flags to a command that has those of jobs.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.Agents, "agents", nil, "run each job with each of these agents: claude,codex; with versions or models codex@VERSION,codex@VERSION,claude=MODEL")
	flags.IntVar(&f.BestOf, "best-of", 1, "run each job so often, with each agent, and keep the best: by outcome, checks, size of the change, cost")
	for _, other := range []string{"agent", "agent-version", "model"} {
		cmd.MarkFlagsMutuallyExclusive("agents", other)
	}
}

// Read checks the flags, and names the first of the agents in those of the job, which is not valid
// without one.
func (f *Flags) Read(shell cli.Shell, flags *jobflags.Flags, command bool) (err error) {
	if f.BestOf < 1 || f.BestOf > variants.MostTries {
		return cli.Usage("", "--best-of: %d is not between 1 and %d", f.BestOf, variants.MostTries)
	}
	if f.read, err = variants.Read(f.Agents); err != nil {
		return cli.Usage("", "--agents: %w", err)
	}
	if len(f.read) > 0 && command {
		return cli.Usage("leave one of them out", "--agents and a command after -- both say what runs the job")
	}
	for i, v := range f.read {
		if err := workerparts.CheckAgent(shell.Config, v.Name); err != nil {
			return err
		}
		if i == 0 {
			flags.Job.Agent.Name = v.Name
		}
	}
	return nil
}

// Plan says how often each item of a batch runs. Several agents compare all that they make; keep
// says that only the best of it is wanted, as where there are several tries.
func (f *Flags) Plan(agent jobs.Agent, keep bool) (plan variants.Plan, several bool) {
	plan = variants.Plan{Agents: f.read, Agent: agent}
	if f.BestOf > 1 || keep && len(f.read) > 0 {
		plan.Tries = f.BestOf
	}
	return plan, len(plan.Agents) > 0 || plan.Tries > 0
}

// item is the name of a job that has none, in the names of its tries.
const item = "job"

// Make makes as many jobs of one as the flags say, each on the same commit: a branch that moves
// meanwhile would make results that cannot be compared.
func (f *Flags) Make(ctx context.Context, shell cli.Shell, job jobs.Job, flags jobflags.Flags) ([]jobs.Job, error) {
	if err := jobflags.Base(ctx, shell, &job, flags); err != nil {
		return nil, err
	}
	if _, several := f.Plan(job.Agent, true); several && jobflags.Pinned(job) {
		commit, err := checkout.Resolve(ctx, job.Repo.URL, job.Repo.Ref, os.Environ())
		if err != nil {
			return nil, cli.Usage("name a full commit with --ref", "no commit to begin the tries from: %w", err)
		}
		job.Repo.Commit = commit
	}
	return f.expand(job)
}

// DryRun prints what would be submitted.
func (f *Flags) DryRun(shell cli.Shell, job jobs.Job) error {
	list, err := f.expand(job)
	if err != nil {
		return err
	}
	return jobflags.DryRun(shell, list)
}

func (f *Flags) expand(job jobs.Job) ([]jobs.Job, error) {
	plan, several := f.Plan(job.Agent, true)
	if !several {
		return []jobs.Job{job}, nil
	}
	if job.Batch == "" {
		job.Batch = jobs.NewID()
		if job.Key != "" { // the same key gives the same batch
			job.Batch = uuid.NewSHA1(uuid.NameSpaceOID, []byte("best-of/"+job.Key)).String()
		}
	}
	name := cmp.Or(job.Item, item)
	all, err := variants.Expand([]intake.Item{{ID: name, Job: job}}, plan)
	if err != nil {
		return nil, cli.Usage("", "--best-of: %w", err)
	}
	var list []jobs.Job
	for _, try := range all {
		if try.Err != nil {
			return nil, cli.Usage("", "--best-of: %w", try.Err)
		}
		if job.Key != "" {
			try.Job.Key = job.Key + strings.TrimPrefix(try.ID, name)
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

// Best says on standard error what each agent's tries came to, and which try is the best, and returns
// the id of that one's job.
func Best(ctx context.Context, shell cli.Shell, p *pool.Pool, batch string) (string, error) {
	r, err := p.Client.Batches().Report(ctx, batch)
	if err != nil {
		return "", fmt.Errorf("batch %s: %w", batch, err)
	}
	for _, a := range r.Agents {
		shell.Err.Printf("penstock: %s: %d of %d tries succeeded, %s checks passed, %s tokens, %s\n", a.Agent, a.GoodTries, a.Tries, a.Passed(), report.Number(a.Usage.Total()), report.Dollars(a.CostUSD))
	}
	for _, best := range r.Rows {
		if best.Best {
			by := ""
			if best.Agent != "" {
				by = " by " + best.Agent
			}
			shell.Err.Printf("penstock: the best of %d tries is %s%s, job %s: %s, %d of %d checks passed, %d lines changed, $%.2f\n",
				r.Tries.Runs, best.ID, by, best.Job, best.Outcome, best.ChecksPassed, best.Checks, best.Added+best.Removed, best.CostUSD)
			return best.Job, nil
		}
	}
	return "", fmt.Errorf("batch %s: none of its tries has ended", batch)
}
