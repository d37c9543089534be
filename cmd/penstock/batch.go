package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/holds"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jail"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

func (a *app) batchCommand() *cobra.Command {
	batch := &cobra.Command{Use: "batch", Short: "Run many jobs and keep their results in a directory"}
	batch.AddCommand(a.batchRunCommand(), a.batchStatus(), a.batchResults(), a.batchReport(),
		a.batchLs(), a.batchCancel(), holds.PauseCommand(a.shell(), jobs.HoldBatch, "DIR|ID", batchID), holds.ResumeCommand(a.shell(), jobs.HoldBatch, "DIR|ID", batchID))
	return batch
}

// batchFlags are the flags of batch run besides those of a job.
type batchFlags struct {
	jobflags.Flags
	read        intake.Options
	template    string
	vars        []string
	columns     []string
	out         string
	redo        string
	follow      bool
	maxParallel int
	maxFailures int

	cancelOnInterrupt bool
}

func (f *batchFlags) add(flags *pflag.FlagSet) {
	f.Flags.Add(flags)
	f.AddUncommitted(flags)
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
	flags.IntVar(&f.maxFailures, "max-failures", 0, "stop after this many jobs without success")
	flags.BoolVar(&f.cancelOnInterrupt, "cancel-on-interrupt", false, "cancel the remaining jobs if the command is interrupted; without it they continue in a running pool")
}

func (a *app) batchRunCommand() *cobra.Command {
	var flags batchFlags
	cmd := &cobra.Command{
		Use:   "run FILE|- [flags] [-- COMMAND ARG…]",
		Short: "Run every item of a file as a job, wait, and write a results directory",
		Long: `Run reads a file of issues, benchmark instances or jobs, runs each as a job, and
writes patches, logs, predictions and a report. The same command again runs only the
items without a result. An interrupted run keeps its results; its jobs continue in a
running pool, unless --cancel-on-interrupt ends them.`,
		Example: `  gh issue list --json number,title,body,url,labels | penstock batch run - --repo . --agent claude
  penstock batch run instances.jsonl --format swebench --max-parallel 16 --out results
  penstock batch run issues.csv --map prompt=Description --repo /src/app -- ./agent.sh`,
		RunE: func(cmd *cobra.Command, args []string) error {
			before, command := input.SplitDash(cmd.Flags(), args)
			if len(before) != 1 {
				return cli.Usage("name a file, or - for standard input", "expected one file, not %d", len(before))
			}
			items, err := a.readBatch(before[0], flags, command)
			if err != nil {
				return err
			}
			if flags.DryRun {
				return a.dryBatch(items)
			}
			return a.runBatch(cmd.Context(), items, flags)
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().AddFlagSet(jail.PolicyFlag(&a.cfg))
	return jobflags.Grouped(cmd)
}

// readBatch reads the items and lays the flags under each of them.
func (a *app) readBatch(file string, flags batchFlags, command []string) (intake.Items, error) {
	var none intake.Items
	opts := flags.read
	var err error
	if opts.Defaults, err = flags.Values(command); err != nil {
		return none, err
	}
	opts.Locate = locator()
	if flags.template != "" {
		text, err := input.ReadFile(flags.template, input.MaxFile)
		if err != nil {
			return none, cli.Usage("", "--prompt-template: %w", err)
		}
		opts.Template = string(text)
	}
	if opts.Vars, err = jobflags.Pairs("var", flags.vars); err != nil {
		return none, err
	}
	if opts.Map, err = jobflags.Pairs("map", flags.columns); err != nil {
		return none, err
	}
	in := a.in
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return none, cli.Usage("", "batch: %w", err)
		}
		defer f.Close()
		in = f
	}
	items, err := intake.Read(in, file, opts)
	if err != nil {
		return none, cli.Usage("penstock batch run --help shows the formats; penstock schema batch the fields", "%w", err)
	}
	if len(items.Items) == 0 {
		return none, cli.Usage("--filter matches from the beginning of an id; --dry-run -o id lists what is selected", "%s: none of its %d items is selected", file, items.Total)
	}
	for i, item := range items.Items {
		if err := workerparts.CheckAgent(&a.cfg, item.Job.Agent.Name); err != nil && item.Err == nil {
			items.Items[i].Err = fmt.Errorf("%s:%d: %w", file, item.Line, err)
		}
	}
	return items, nil
}

// locator finds the repository of items that name none: the one around the
// current directory, which is looked for once, and only if some item needs it.
func locator() func(jobs.Job) (string, error) {
	around := sync.OnceValues(func() (string, error) {
		url, err := jobflags.RepositoryAround()
		if err != nil {
			err = fmt.Errorf("it names no repository, and %w: use --repo", err)
		}
		return url, err
	})
	return func(job jobs.Job) (string, error) {
		if job.Isolation == jobs.IsolationNone {
			return "", nil
		}
		return around()
	}
}

// dryBatch prints what would be submitted, and what cannot be.
func (a *app) dryBatch(items intake.Items) error {
	var list []jobs.Job
	bad := items.Errors()
	for _, item := range items.Items {
		if item.Err == nil {
			list = append(list, item.Job)
		}
	}
	view := cli.View[jobs.Job]{
		Header: []string{"ITEM", "AGENT", "REPO", "REF", "TITLE"},
		Row: func(j jobs.Job) []string {
			return []string{j.Item, j.Agent.Name, j.Repo.URL, j.Repo.Ref, j.Title()}
		},
		ID: func(j jobs.Job) string { return j.Item },
	}
	if err := view.List(a.out, a.format, list); err != nil {
		return err
	}
	a.err.Printf("penstock: %s: %d of %d items selected, %d invalid (%s)\n", items.Name, len(items.Items), items.Total, len(bad), items.Format)
	return invalidItems(bad)
}

// invalidItems makes one error of all items that cannot be run.
func invalidItems(bad []intake.Item) error {
	if len(bad) == 0 {
		return nil
	}
	const most = 10 // what is wrong with one is often wrong with each
	var errs []error
	for i, item := range bad {
		if i == most && len(bad) > most+1 {
			errs = append(errs, fmt.Errorf("and %d more items", len(bad)-most))
			break
		}
		errs = append(errs, item.Err) // which names the file and the line
	}
	return cli.Usage("fix these lines, or leave them out with --filter", "%w", errors.Join(errs...))
}

func (a *app) batchStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status DIR", Short: "Show how far a batch has come", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withDir(args[0], func(dir *results.Dir) error {
				view := cli.View[results.Manifest]{
					Header: []string{"BATCH", "STATE", "ITEMS", "DONE", "MISSING", "OUTCOMES", "COST", "WHY"},
					Row: func(m results.Manifest) []string {
						t := m.Totals
						return []string{
							m.ID, string(m.State), strconv.Itoa(t.Items), strconv.Itoa(t.Done), strconv.Itoa(t.Missing),
							transcript.Tally(t.Outcomes), fmt.Sprintf("%.2f", t.CostUSD), m.Why,
						}
					},
					ID: func(m results.Manifest) string { return m.ID },
				}
				return view.One(a.out, a.format, dir.Manifest())
			})
		},
	}
}

func (a *app) batchResults() *cobra.Command {
	return &cobra.Command{
		Use: "results DIR", Short: "List the results of a batch; the exit code is that of the worst outcome", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withDir(args[0], func(dir *results.Dir) error {
				list, err := allResults(dir)
				if err != nil {
					return err
				}
				return errors.Join(jobview.Results.List(a.out, a.format, list), jobview.Outcome(nil, list...))
			})
		},
	}
}

func allResults(dir *results.Dir) ([]jobs.Result, error) {
	var list []jobs.Result
	for r, err := range dir.Results() {
		if err != nil {
			return nil, fmt.Errorf("read the results: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}

func (a *app) batchReport() *cobra.Command {
	return &cobra.Command{
		Use: "report DIR", Short: "Print the report of a batch, in Markdown", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return withDir(args[0], func(dir *results.Dir) error { return dir.Report(a.out, "md") })
		},
	}
}

func withDir(path string, fn func(*results.Dir) error) error {
	dir, err := results.Load(path)
	if err != nil {
		return cli.Fail(cli.ExitNotFound, "name the directory that batch run used as --out", "%w", err)
	}
	return fn(dir)
}
