package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

func (a *app) submitCommand() *cobra.Command {
	var flags jobflags.Flags
	cmd := &cobra.Command{
		Use:   "submit [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Submit one job and return at once",
		Example: `  penstock submit "Fix the typo in README" --repo /src/app --agent claude
  penstock submit --job job.json
  penstock submit --repo . -- ./agent.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := jobflags.Parse(a.shell(), cmd, args, flags)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return jobflags.DryRun(a.shell(), job)
			}
			if err := jobflags.Base(cmd.Context(), a.shell(), &job, flags); err != nil {
				return err
			}
			p, err := pool.Open(cmd.Context(), a.shell(), "submit", pool.Hooks{})
			if err != nil {
				return err
			}
			answer, err := a.submit(cmd.Context(), p, job, flags.StrictKey)
			if err == nil {
				err = submittedView.One(a.out, a.format, answer)
			}
			if p.Own() && err == nil {
				a.err.Printf("penstock: no pool runs on %s; the job waits until one does (penstock serve --slots 2)\n", a.cfg.Data)
			}
			return errors.Join(err, p.Close())
		},
	}
	flags.Add(cmd.Flags())
	flags.AddUncommitted(cmd.Flags())
	flags.AddFile(cmd.Flags())
	return jobflags.Grouped(cmd)
}

// submit hands a job in, and says so if its key belongs to a job that differs
// from it, which stays as it is. Where the key is strict, that is an error.
func (a *app) submit(ctx context.Context, p *pool.Pool, job jobs.Job, strictKey bool) (operation.Submitted, error) {
	answer, err := p.Submit(ctx, job, "cli")
	if err == nil && strictKey {
		err = refuseDiffering(job, answer)
	}
	if err == nil && len(answer.Differs) > 0 {
		a.err.Printf("penstock: %s; that job does not change (--strict-key refuses this)\n", keyTaken(job, answer))
	}
	return answer, err
}

func keyTaken(job jobs.Job, answer operation.Submitted) string {
	return fmt.Sprintf("key %s belongs to job %s already, which differs in %s", job.Key, answer.ID, strings.Join(answer.Differs, ", "))
}

// refuseDiffering is the error of --strict-key, where the key belongs to a
// job that differs.
func refuseDiffering(job jobs.Job, answer operation.Submitted) error {
	if len(answer.Differs) == 0 {
		return nil
	}
	return cli.Usage("use another key, or leave --strict-key out to get that job", "%s", keyTaken(job, answer))
}

var submittedView = cli.View[operation.Submitted]{
	Header: []string{"JOB", "SESSION", "DUPLICATE"},
	Row:    func(s operation.Submitted) []string { return []string{s.ID, s.Session, fmt.Sprint(s.Duplicate)} },
	ID:     func(s operation.Submitted) string { return s.ID },
}
