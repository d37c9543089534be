package jobcmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/control"
	"github.com/penstock-run/penstock/jobs/operation"
)

func resume(shell cli.Shell) *cobra.Command {
	var text, id string
	var more jobs.Allowance
	cmd := &cobra.Command{
		Use: "resume ID", Args: cobra.ExactArgs(1),
		Short: "Continue the conversation of a finished job's agent",
		Long: `Resume continues a finished job where its agent stopped: with the conversation, and
with the changes. job retry begins anew instead. A job that has spent its budget goes on
with a larger one.`,
		Example: `  penstock job resume ID --prompt "Add a test, too"
  penstock job resume ID --max-cost 5`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var prompt *control.Message
			if cmd.Flags().Changed("prompt") {
				words, err := jobflags.Prompt(shell, []string{text})
				if err != nil {
					return err
				}
				prompt = &control.Message{ID: cmp.Or(id, jobs.NewID()), Verb: control.Prompt, By: "cli", Text: words}
			} else if id != "" {
				return cli.Usage("", "--id names a message: it needs --prompt")
			}
			for name, none := range map[string]bool{"max-cost": more.USD == 0, "max-tokens": more.Tokens == 0} {
				if cmd.Flags().Changed(name) && none {
					return cli.Usage("", "--%s is 0: name what the job may spend in all", name)
				}
			}
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				rec, err := p.Client.Resume(ctx, operation.ResumeRequest{ID: rec.ID, Prompt: prompt, Budget: more})
				if err != nil {
					return refusal(err)
				}
				waits(shell, p)
				return jobview.Records.One(shell.Out, *shell.Format, rec)
			})
		},
	}
	cmd.Flags().StringVar(&text, "prompt", "", "prompt for the agent, or - for standard input (default: do the remaining work)")
	cmd.Flags().Float64Var(&more.USD, "max-cost", 0, "US dollars that the job may cost in all, more than so far")
	cmd.Flags().Int64Var(&more.Tokens, "max-tokens", 0, "tokens that the job may use in all, more than so far")
	cmd.Flags().StringVar(&id, "id", "", "id of the prompt, a UUID: the same id again has no effect (default: a new one)")
	return cmd
}

// waits warns that no pool runs that would continue the job.
func waits(shell cli.Shell, p *pool.Pool) {
	if p.Own() {
		shell.Err.Printf("penstock: no pool runs on %s; the job waits until one does (penstock serve --slots 2)\n", shell.Config.Data)
	}
}

// goOn is the prompt of a fork without one.
const goOn = "Go on with what is left to do. If nothing is, say so in one short sentence."

func fork(shell cli.Shell) *cobra.Command {
	var text string
	var n int
	cmd := &cobra.Command{
		Use: "fork ID", Args: cobra.ExactArgs(1),
		Short: "Submit jobs that begin with a copy of another one's conversation and files",
		Example: `  penstock job fork ID --prompt "Try it without a new dependency"
  penstock job fork ID -n 3 -o id`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if n < 1 || n > 100 {
				return cli.Usage("", "-n is %d: use 1 to 100", n)
			}
			prompt, err := jobflags.Prompt(shell, []string{text})
			if err != nil {
				return err
			}
			return pool.WithJob(cmd.Context(), shell, args[0], func(ctx context.Context, p *pool.Pool, rec jobs.Record) error {
				forks, err := forkJob(ctx, p, rec.ID, prompt, n)
				if err != nil {
					return cmp.Or(jobview.Submitted.List(shell.Out, *shell.Format, forks), err)
				}
				waits(shell, p)
				return jobview.Submitted.List(shell.Out, *shell.Format, forks)
			})
		},
	}
	cmd.Flags().StringVar(&text, "prompt", goOn, "prompt for the new jobs, or - for standard input")
	cmd.Flags().IntVarP(&n, "count", "n", 1, "how many jobs")
	return cmd
}

// forkJob submits jobs that begin with a copy of a job's conversation, signed where this
// command has a key. With an error it returns those that it has submitted.
func forkJob(ctx context.Context, p *pool.Pool, id, prompt string, n int) ([]operation.Submitted, error) {
	if !p.Signs() {
		return p.Client.WithTrace(jobflags.Trace()).Fork(ctx, id, prompt, n)
	}
	shown, err := p.Client.Show(ctx, id)
	if err == nil && shown.Job == nil {
		err = fmt.Errorf("specification of job %s: %w", id, jobs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	var forks []operation.Submitted
	for range n {
		answer, err := p.Submit(ctx, shown.Job.Forked(id, prompt).In(jobflags.Trace()), "cli")
		if err != nil {
			return forks, err
		}
		forks = append(forks, answer)
	}
	return forks, nil
}
