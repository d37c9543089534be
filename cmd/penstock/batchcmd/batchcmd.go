// Package batchcmd is the command batch, which runs many jobs from one file and keeps
// their results in a directory.
//
//	file ─▶ items ─▶ base commits ─▶ submission ─▶ pool ─▶ results directory ─▶ report
//
// The directory is the state: the same command again runs the items without a result.
package batchcmd

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/trialmerge"
	"github.com/penstock-run/penstock/cmd/internal/tries"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

// New returns the command batch.
func New(shell cli.Shell) *cobra.Command {
	batch := &cobra.Command{Use: "batch", Short: "Run many jobs and keep their results in a directory"}
	batch.AddCommand(runCommand(shell), status(shell), listResults(shell), reportOf(shell), ls(shell), cancel(shell),
		trialmerge.Command(shell), applyCommand(shell), export(shell),
		holds.PauseCommand(shell, jobs.HoldBatch, "DIR|ID", results.BatchID), holds.ResumeCommand(shell, jobs.HoldBatch, "DIR|ID", results.BatchID))
	return batch
}

// runFlags are the flags of batch run besides those of a job.
type runFlags struct {
	jobflags.Flags
	read        intake.Options
	fromGitHub  string
	issues      []byte // that the search has found
	template    string
	vars        []string
	columns     []string
	tries       tries.Flags
	out         string
	redo        string
	follow      bool
	maxParallel int
	maxFailures int
	maxCost     float64 // of the whole batch
	maxTokens   int64

	cancelOnInterrupt bool
}

func (f *runFlags) add(flags *pflag.FlagSet) {
	f.Flags.Add(flags)
	f.AddUncommitted(flags)
	flags.StringVar(&f.fromGitHub, fromGitHub, "", "the issues that this search of GitHub finds, instead of FILE: 'repo:you/app label:bug is:open'")
	f.read.Format = "auto"
	flags.Var(input.OneOf(&f.read.Format, intake.Formats()...), "format", "auto, jsonl, json, yaml, csv, gh-issues or swebench")
	flags.StringVar(&f.template, "prompt-template", "", "file with a Go template that makes each prompt")
	flags.StringArrayVar(&f.vars, "var", nil, "variable k=v for the template (repeatable)")
	flags.StringArrayVar(&f.columns, "map", nil, "CSV: field=Column (repeatable)")
	flags.StringVar(&f.read.Filter, "filter", "", "only items whose id matches this regular expression")
	flags.StringVar(&f.read.Slice, "slice", "", "only these items, as in Python: 0:50, ::2")
	flags.IntVar(&f.read.Limit, "limit", 0, "at most this many items")
	flags.BoolVar(&f.read.Shuffle, "shuffle", false, "shuffle the items, the same way each time")
	flags.Int64Var(&f.read.Seed, "seed", 42, "seed of --shuffle")
	flags.StringVar(&f.out, "out", "penstock-results", "results directory; the same command again runs only the items without a result there")
	flags.StringVar(&f.redo, "redo", "", "run these items again: failed, error, all, or a list of ids")
	flags.Var((*input.Size)(&f.read.Limits.Line), "max-line", "largest line, row or element of a list in FILE (default 1MiB)")
	flags.IntVar(&f.read.Limits.Items, "max-items", 0, "most items in FILE (default 100000)")
	flags.Var((*input.Size)(&f.read.Limits.Bytes), "max-input", "largest FILE (default 1GiB)")
	flags.BoolVar(&f.follow, "follow", false, "start each job from the commit of its branch at that time, not from that at the start of the batch")
	flags.IntVar(&f.maxParallel, "max-parallel", 0, "jobs at once (default: one per processor)")
	flags.Float64Var(&f.maxCost, "batch-max-cost", 0, "US dollars that all jobs of the batch may cost together")
	flags.Int64Var(&f.maxTokens, "batch-max-tokens", 0, "tokens that all jobs of the batch may use together")
	flags.IntVar(&f.maxFailures, "max-failures", 0, "stop after this many jobs without success")
	flags.BoolVar(&f.cancelOnInterrupt, "cancel-on-interrupt", false, "cancel the remaining jobs if the command is interrupted; without it they continue in a running pool")
}

// shared is what the jobs of the batch may spend together.
func (f *runFlags) shared() jobs.Budget {
	return jobs.Budget{BatchUSD: f.maxCost, BatchTokens: f.maxTokens}
}

// fromGitHub is the flag for a search, and what a batch's manifest calls it.
const fromGitHub = "from-github"

func runCommand(shell cli.Shell) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [FILE|-] [flags] [-- COMMAND ARG…]",
		Short: "Run every item of a file, or of a search, as a job, wait, and write a results directory",
		Long: `Run reads a file of issues, benchmark instances or jobs, or the issues that a search of
GitHub finds, runs each as a job, and writes patches, logs, predictions and a report. The
same command again runs only the items without a result. An interrupted run keeps its
results; its jobs continue in a running pool, unless --cancel-on-interrupt ends them.`,
		Example: `  gh issue list --json number,title,body,url,labels | penstock batch run - --repo . --agent claude
  penstock batch run --from-github 'repo:you/app label:bug is:open' --agent claude --deliver pr
  penstock batch run instances.jsonl --format swebench --max-parallel 16 --out results
  penstock batch run issues.jsonl --agents claude,codex,gemini --check 'go test ./...'
  penstock batch run issues.jsonl --agents codex@0.169.0,codex@0.171.0 --best-of 3 --check 'go test ./...'
  penstock batch run issues.csv --map prompt=Description --repo /src/app -- ./agent.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			in, err := flags.open(cmd.Context(), shell, before)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }() // which was only read
			items, err := readItems(shell, in, flags, command)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return dryRun(shell, items, flags)
			}
			return runItems(cmd.Context(), shell, items, flags)
		},
	}
	flags.add(cmd.Flags())
	flags.tries.Add(cmd)
	cmd.Flags().AddFlagSet(jail.PolicyFlag(shell.Config))
	return jobflags.Grouped(cmd)
}
