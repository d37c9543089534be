// Package chosen picks the results of a batch that are to be brought into a repository: those of
// successful jobs that changed a file, without what was rejected, and of several tries of an
// item the best.
package chosen

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/series"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/report"
)

// Results are the chosen ones of a batch, in its order.
type Results struct {
	Source string // the directory's whole path, or the batch's id
	Batch  string // its id
	List   []jobs.Result
	Pool   *pool.Pool // that they were read from; nil: from a directory

	all   []jobs.Result          // with those that are worse than another
	left  []jobs.Result          // that are left out, since they were rejected
	worse []jobs.Result          // that are left out, since another try of their item is better
	items map[string]report.Item // what each is a run of, by which agent, and how large where that decides
	open  func(context.Context, jobs.Result) (io.ReadCloser, error)
}

// With calls fn with the results of a results directory, or of a batch of the pool.
func With(ctx context.Context, shell cli.Shell, arg string, fn func(Results) error) error {
	dir, err := results.Load(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && jobs.CheckToken("batch", arg) == nil:
		return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
			c, err := ofPool(ctx, p, arg)
			if err != nil {
				return err
			}
			return c.best(ctx, fn)
		})
	case err != nil:
		return NoDir(err)
	}
	c, err := ofDir(arg, dir)
	if err == nil {
		err = c.best(ctx, fn)
	}
	return errors.Join(err, dir.Close())
}

// Jobs calls fn with the results of jobs of the pool, whatever their outcomes.
func Jobs(ctx context.Context, shell cli.Shell, ids []string, fn func(Results) error) error {
	return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
		c := Results{Source: "the pool", Pool: p}
		c.open = func(ctx context.Context, r jobs.Result) (io.ReadCloser, error) { return p.Client.Patch(ctx, r.Job) }
		for _, id := range ids {
			r, err := p.Client.Result(ctx, id)
			if err == nil && r.FilesChanged == 0 {
				err = cli.Fail(cli.ExitNotFound, "", "it changed no file")
			}
			if err != nil {
				return fmt.Errorf("result of job %s: %w", id, err)
			}
			r.ID = r.Job // items of different batches may have the same name
			if !slices.ContainsFunc(c.List, func(other jobs.Result) bool { return other.Job == r.Job }) {
				c.List = append(c.List, r)
			}
		}
		return fn(c)
	})
}

// NoDir is the error of a results directory that cannot be read.
func NoDir(err error) error {
	return cli.Fail(cli.ExitNotFound, "name the directory that batch run used as --out", "%w", err)
}

func ofDir(arg string, dir *results.Dir) (c Results, err error) {
	if c.Source, err = filepath.Abs(arg); err != nil {
		return c, err
	}
	all, err := results.All(dir)
	if err != nil {
		return c, err
	}
	for _, r := range all {
		c.add(r)
	}
	m := dir.Manifest()
	c.Batch = m.ID
	c.items = make(map[string]report.Item, len(m.Items))
	for _, item := range m.Items {
		c.items[item.ID] = report.Item{Of: item.Of, Agent: item.Agent, Try: item.Try}
	}
	c.open = func(_ context.Context, r jobs.Result) (io.ReadCloser, error) { return dir.Patch(r.ID) }
	return c, nil
}

func ofPool(ctx context.Context, p *pool.Pool, id string) (Results, error) {
	c := Results{Source: id, Batch: id, Pool: p}
	c.open = func(ctx context.Context, r jobs.Result) (io.ReadCloser, error) { return p.Client.Patch(ctx, r.Job) }
	c.items = map[string]report.Item{}
	list, err := p.Jobs(ctx, operation.ListRequest{Batch: id, Outcome: jobs.Success})
	if err != nil {
		return c, err
	}
	for _, rec := range list {
		r, err := p.Client.Result(ctx, rec.ID)
		if err != nil {
			return c, fmt.Errorf("result of job %s: %w", rec.ID, err)
		}
		var item report.Item
		item.Label(rec.Labels)
		c.items[r.ID] = item
		if rec.Reviewed() == jobs.Rejected {
			c.left = append(c.left, r)
			continue
		}
		c.add(r)
	}
	return c, nil
}

func (c *Results) add(r jobs.Result) {
	if r.Outcome == jobs.Success && r.FilesChanged > 0 {
		c.List = append(c.List, r)
	}
}

// best calls fn with the best of several tries of each item.
func (c *Results) best(ctx context.Context, fn func(Results) error) error {
	count := map[string]int{}
	for _, r := range c.List {
		count[c.items[r.ID].Of]++
	}
	for _, r := range c.List {
		item := c.items[r.ID]
		if !item.IsTry() || count[item.Of] == 1 { // there is nothing to choose, so its patch need not be read
			continue
		}
		stat, err := c.stat(ctx, r)
		if err != nil {
			return fmt.Errorf("the patch of item %s: %w", r.ID, err)
		}
		entry := report.Of("", r, &stat).Item
		entry.Of, entry.Agent, entry.Try = item.Of, item.Agent, item.Try
		c.items[r.ID] = entry
	}
	c.all = slices.Clone(c.List)
	c.keepBest()
	return fn(*c)
}

// keepBest moves all but the best of several tries of each item from the list to the worse ones.
func (c *Results) keepBest() {
	var rows []report.Item
	for _, r := range c.List {
		row := c.items[r.ID]
		row.Outcome = r.Outcome // all are successes
		rows = append(rows, row)
	}
	best := report.BestBy(rows, func(i report.Item) string {
		if !i.IsTry() {
			return ""
		}
		return i.Of
	})
	var list []jobs.Result
	for i, r := range c.List {
		if rows[i].IsTry() && !best[i] {
			c.worse = append(c.worse, r)
		} else {
			list = append(list, r)
		}
	}
	c.List = list
}

// stat reads what a patch changes.
func (c *Results) stat(ctx context.Context, r jobs.Result) (stat patchstat.Stat, err error) {
	in, err := c.open(ctx, r)
	if err != nil {
		return stat, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return patchstat.Read(io.LimitReader(in, maxPatch))
}

// Only leaves the results of one agent, of a batch that compares several; "" leaves all.
func (c *Results) Only(agent string) error {
	if agent == "" {
		return nil
	}
	var names []string
	for _, item := range c.items {
		names = append(names, item.Agent)
	}
	slices.Sort(names)
	if names = slices.Compact(names); !slices.Contains(names, agent) {
		return cli.Usage("", "--agent: batch %s compares no agent %q; it has %s", c.Batch, agent, cmp.Or(strings.Join(names, ", "), "none"))
	}
	// The best of all tries may be another agent's.
	c.List, c.worse = slices.Clone(c.all), nil
	other := func(r jobs.Result) bool { return c.items[r.ID].Agent != agent }
	c.List, c.left = slices.DeleteFunc(c.List, other), slices.DeleteFunc(c.left, other)
	c.keepBest()
	return nil
}

// OfOneAgent is [Results.Only], where a batch that compares several agents needs the name of one.
func (c *Results) OfOneAgent(agent string) error {
	if agent == "" && c.Compares() {
		return cli.Usage("name the agent whose patches to take: --agent NAME", "batch %s has several results of each item", c.Batch)
	}
	return c.Only(agent)
}

// Compares reports whether several agents ran each item, and none of their results is the best.
func (c Results) Compares() bool {
	for _, item := range c.items {
		if item.Agent != "" && !item.IsTry() {
			return true
		}
	}
	return false
}

// None is the error for a batch without a patch.
func (c Results) None() error {
	return cli.Fail(cli.ExitNotFound, "", "batch %s has no successful job that changed a file", c.Batch)
}

// maxPatch bounds a patch that is applied.
const maxPatch = 1 << 30

// Patch reads the patch of a result.
func (c Results) Patch(ctx context.Context, r jobs.Result) (patch []byte, err error) {
	in, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(in, maxPatch+1))
	if n > maxPatch {
		return nil, fmt.Errorf("the patch is larger than %s", jobs.Bytes(maxPatch))
	}
	return out.Bytes(), err
}

// Tell says how many results are left out.
func (c Results) Tell(shell cli.Shell) {
	if len(c.left) > 0 {
		shell.Progressf("%d rejected results are left out", len(c.left))
	}
	if len(c.worse) > 0 {
		shell.Progressf("%d results are left out, since another try of their item is better", len(c.worse))
	}
}

// Of is the source of a series' patches. A result that was rejected after the series began,
// or has a better one since, is still in it.
func (c Results) Of(ctx context.Context, step series.Step) ([]byte, error) {
	for _, r := range slices.Concat(c.List, c.left, c.worse) {
		if r.Job == step.Job {
			return c.Patch(ctx, r)
		}
	}
	return nil, fmt.Errorf("%s has no result of it any more", c.Source)
}
