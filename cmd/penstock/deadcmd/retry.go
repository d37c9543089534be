package deadcmd

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/visible"
)

var doneView = cli.View[operation.DeadDone]{
	Header: []string{"ID", "KIND", "DID", "JOB", "ERROR"},
	Row: func(d operation.DeadDone) []string {
		return []string{d.ID, string(d.Kind), d.Did, d.Job, visible.FirstLine(d.Error)}
	},
	ID: func(d operation.DeadDone) string { return d.ID },
}

func retry(shell cli.Shell) *cobra.Command {
	var fromSalvage bool
	return bulk(shell, &cobra.Command{
		Use:   "retry [ID…]",
		Short: "Run dead jobs again, and submit refused submissions again",
		Long: `Retry makes dead jobs pending again, with all their attempts still available, and
submits refused submissions again: they may be accepted now. Name dead letters by
their ids, or select them with --all and the other flags. Letters that cannot be
retried stay, and the others are retried. A refused submission keeps its signature,
if it has one; with --sign-key it is signed again.`,
		Example: `  penstock dead retry --all --reason model_billing
  penstock dead retry --all --batch 01a1fa91-97d5 --dry-run`,
	}, &fromSalvage, func(ctx context.Context, p *pool.Pool, l jobs.DeadLetter) (operation.DeadDone, error) {
		if l.Kind == jobs.DeadSubmission && p.Signs() {
			return resubmit(ctx, p, l) // the dispatcher has no key
		}
		return p.Client.DeadLetters().Retry(ctx, l.ID, fromSalvage)
	})
}

// resubmit submits a refused submission again, signed with this command's key, and
// drops its letter once it is accepted.
func resubmit(ctx context.Context, p *pool.Pool, l jobs.DeadLetter) (operation.DeadDone, error) {
	job, err := l.Submission()
	if err != nil {
		return operation.DeadDone{}, err
	}
	job.Signature, job.Key = nil, cmp.Or(job.Key, l.RetryKey())
	submitted, err := p.Submit(ctx, job, "cli")
	if err != nil {
		return operation.DeadDone{}, err
	}
	_, err = p.Client.DeadLetters().Drop(ctx, l.ID)
	return operation.DeadDone{ID: l.ID, Kind: l.Kind, Did: "submitted", Job: submitted.ID}, err
}

func drop(shell cli.Shell) *cobra.Command {
	return bulk(shell, &cobra.Command{
		Use: "drop [ID…]", Short: "Remove dead letters; their jobs stay as they are",
	}, nil, func(ctx context.Context, p *pool.Pool, l jobs.DeadLetter) (operation.DeadDone, error) {
		return p.Client.DeadLetters().Drop(ctx, l.ID)
	})
}

// bulk makes a command that does something to each of the letters that its
// arguments choose.
func bulk(shell cli.Shell, cmd *cobra.Command, fromSalvage *bool, do func(context.Context, *pool.Pool, jobs.DeadLetter) (operation.DeadDone, error)) *cobra.Command {
	var filter letterFilter
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		return withLetters(cmd.Context(), shell, func(p *pool.Pool, letters []jobs.DeadLetter) error {
			chosen, err := filter.choose(letters, ids)
			if err != nil {
				return err
			}
			if filter.dryRun {
				return view.List(shell.Out, *shell.Format, chosen)
			}
			return each(cmd.Context(), shell, p, chosen, do)
		})
	}
	filter.bulk(cmd)
	if fromSalvage != nil {
		cmd.Flags().BoolVar(fromSalvage, "from-salvage", false, "begin from the last saved changes of an earlier attempt")
	}
	return cmd
}

func each(ctx context.Context, shell cli.Shell, p *pool.Pool, chosen []jobs.DeadLetter, do func(context.Context, *pool.Pool, jobs.DeadLetter) (operation.DeadDone, error)) error {
	var list []operation.DeadDone
	failed := 0
	for _, l := range chosen {
		done, err := do(ctx, p, l)
		if err != nil {
			done = operation.DeadDone{ID: l.ID, Kind: l.Kind, Did: "nothing", Error: err.Error()}
			failed++
		}
		list = append(list, done)
	}
	if err := doneView.List(shell.Out, *shell.Format, list); err != nil {
		return err
	}
	if failed > 0 {
		return cli.Fail(cli.ExitUnexpected, "the others are done", "%d of %d: %s", failed, len(list), firstError(list))
	}
	return nil
}

func firstError(list []operation.DeadDone) string {
	for _, d := range list {
		if d.Error != "" {
			return d.ID + ": " + d.Error
		}
	}
	return ""
}
