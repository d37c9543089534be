package batchcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/jobflags"
	"github.com/penstock-run/penstock/cmd/internal/variants"
	"github.com/penstock-run/penstock/cmd/internal/workerparts"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
)

// A source is what items are read from, with a name for messages.
type source struct {
	name string
	io.ReadCloser
}

// open opens what the items are read from.
func (f *runFlags) open(ctx context.Context, shell cli.Shell, files []string) (source, error) {
	switch {
	case f.fromGitHub != "" && len(files) > 0:
		return source{}, cli.Usage("leave one of them out", "a file and --from-github name items both")
	case f.fromGitHub != "" && f.read.Format != "auto":
		return source{}, cli.Usage("leave --format out", "--from-github has a format of its own")
	case f.fromGitHub != "":
		f.read.Format = "gh-issues"
		var err error
		f.issues, err = issuesOf(ctx, shell, *f)
		return source{"github:" + f.fromGitHub, io.NopCloser(bytes.NewReader(f.issues))}, err
	case len(files) != 1:
		return source{}, cli.Usage("name a file, or - for standard input, or search with --from-github", "expected one file, not %d", len(files))
	case files[0] == "-":
		return source{"-", io.NopCloser(shell.In)}, nil
	}
	file, err := os.Open(files[0])
	if err != nil {
		return source{}, cli.Usage("", "batch: %w", err)
	}
	return source{files[0], file}, nil
}

// readItems reads the items and lays the flags under each of them.
func readItems(shell cli.Shell, in source, flags runFlags, command []string) (intake.Items, error) {
	var none intake.Items
	opts := flags.read
	err := flags.tries.Read(shell, &flags.Flags, len(command) > 0)
	if err != nil {
		return none, err
	}
	if opts.Defaults, err = flags.Values(command); err != nil {
		return none, err
	}
	shared := flags.shared()
	opts.Defaults.Budget.BatchUSD, opts.Defaults.Budget.BatchTokens = shared.BatchUSD, shared.BatchTokens
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
	items, err := intake.Read(in, in.name, opts)
	if err != nil {
		return none, cli.Usage("penstock batch run --help shows the formats; penstock schema batch the fields", "%w", err)
	}
	if len(items.Items) == 0 {
		return none, cli.Usage("--filter matches from the beginning of an id; --dry-run -o id lists what is selected", "%s: none of its %d items is selected", in.name, items.Total)
	}
	if plan, several := flags.tries.Plan(opts.Defaults.Agent, false); several {
		if items.Items, err = variants.Expand(items.Items, plan); err != nil {
			return none, cli.Usage("give one of the items another id", "%w", err)
		}
	}
	for i, item := range items.Items {
		if err := workerparts.CheckAgent(shell.Config, item.Job.Agent.Name); err != nil && item.Err == nil {
			items.Items[i].Err = fmt.Errorf("%s:%d: %w", in.name, item.Line, err)
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

// dryRun prints what would be submitted, and what cannot be.
func dryRun(shell cli.Shell, items intake.Items, flags runFlags) error {
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
			return []string{j.Item, variants.Variant{Name: j.Agent.Name, Version: j.Agent.Version}.String(), j.Repo.URL, j.Repo.Ref, j.Title()}
		},
		ID: func(j jobs.Job) string { return j.Item },
	}
	if err := view.List(shell.Out, *shell.Format, list); err != nil {
		return err
	}
	selected := len(items.Items) / (max(1, len(flags.tries.Agents)) * flags.tries.BestOf)
	shell.Err.Printf("penstock: %s: %d of %d items selected, %d invalid (%s)\n", items.Name, selected, items.Total, len(bad), items.Format)
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
