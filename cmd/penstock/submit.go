package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

func (a *app) submitCommand() *cobra.Command {
	var flags jobFlags
	var file string
	cmd := &cobra.Command{
		Use:   "submit [PROMPT|-] [flags] [-- COMMAND ARG…]",
		Short: "Submit one job and return at once",
		Example: `  penstock submit "Fix the typo in README" --repo /src/app --agent claude
  penstock submit --job job.json
  penstock submit --repo . -- ./agent.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := a.jobOf(cmd, args, flags, file)
			if err != nil {
				return err
			}
			if flags.dryRun {
				return a.dryRun(job)
			}
			if err := a.baseJob(cmd.Context(), &job, flags); err != nil {
				return err
			}
			p, err := pool.Open(cmd.Context(), a.shell(), "submit", pool.Hooks{})
			if err != nil {
				return err
			}
			answer, err := a.submit(cmd.Context(), p, job, flags.strictKey)
			if err == nil {
				err = submittedView.One(a.out, a.format, answer)
			}
			if p.Own() && err == nil {
				a.err.Printf("penstock: no pool runs on %s; the job waits until one does (penstock serve --slots 2)\n", a.cfg.Data)
			}
			return errors.Join(err, p.Close())
		},
	}
	flags.add(cmd.Flags())
	flags.addUncommitted(cmd.Flags())
	cmd.Flags().StringVar(&file, "job", "", "read the whole job from this file (JSON), or from - for standard input")
	return grouped(cmd)
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

// jobOf reads the job from --job, or makes it of the flags and arguments.
func (a *app) jobOf(cmd *cobra.Command, args []string, flags jobFlags, file string) (jobs.Job, error) {
	before, command := split(cmd, args)
	return a.describedJob(before, command, flags, file)
}

// describedJob is jobOf when the arguments before -- and the command after it
// are apart.
func (a *app) describedJob(before, command []string, flags jobFlags, file string) (jobs.Job, error) {
	if file != "" {
		if len(before) > 0 || len(command) > 0 {
			return jobs.Job{}, cli.Usage("", "--job %s is the whole job: leave out the prompt and the command", file)
		}
		return a.readJob(file)
	}
	if len(before) > 1 {
		return jobs.Job{}, cli.Usage("put quotes around the prompt", "expected one prompt, not %d arguments", len(before))
	}
	prompt, err := a.prompt(before)
	if err != nil {
		return jobs.Job{}, err
	}
	flags.job.Prompt = prompt
	job, err := flags.build(command)
	if err != nil {
		return jobs.Job{}, err
	}
	job = job.WithDefaults()
	return job, errors.Join(job.Validate(), workerparts.CheckAgent(&a.cfg, job.Agent.Name))
}

func (a *app) readJob(file string) (jobs.Job, error) {
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return jobs.Job{}, cli.Usage("", "--job: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := input.ReadAll(in, file, jobs.MaxJobBytes)
	if err != nil {
		return jobs.Job{}, cli.Usage("", "--job: %w", err)
	}
	job, err := jobs.Decode(data)
	if err != nil {
		return jobs.Job{}, cli.Usage("penstock schema job prints what is allowed", "%s: %w", file, err)
	}
	return job, workerparts.CheckAgent(&a.cfg, job.Agent.Name)
}

func (a *app) dryRun(job jobs.Job) error {
	if a.format == cli.Table {
		a.format = cli.JSON
	}
	return cli.View[jobs.Job]{ID: func(j jobs.Job) string { return j.Key }}.One(a.out, a.format, job)
}
