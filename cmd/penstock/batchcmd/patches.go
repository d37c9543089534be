package batchcmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// collected are the successful results of a batch with a patch, in its order.
type collected struct {
	source string // the directory's whole path, or the batch's id
	batch  string // its id
	list   []jobs.Result
	left   []jobs.Result     // that are left out, since they were rejected
	worse  []jobs.Result     // that are left out, since another try of their item is better
	agents map[string]string // by item; "" in a batch that compares none
	tries  map[string]string // of what each try is one, by item
	open   func(context.Context, jobs.Result) (io.ReadCloser, error)
	pool   *pool.Pool // that they were read from; nil: from the directory
}

// withPatches collects the successful results of a results directory, or of a batch of the
// pool.
func withPatches(ctx context.Context, shell cli.Shell, arg string, fn func(collected) error) error {
	dir, err := results.Load(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && jobs.CheckToken("batch", arg) == nil:
		return pool.With(ctx, shell, "read", func(p *pool.Pool) error {
			c, err := ofPool(ctx, p, arg)
			if err == nil {
				err = c.best(ctx)
			}
			if err != nil {
				return err
			}
			return fn(c)
		})
	case err != nil:
		return noDir(err)
	}
	c, err := ofDir(arg, dir)
	if err == nil {
		err = c.best(ctx)
	}
	if err == nil {
		err = fn(c)
	}
	return errors.Join(err, dir.Close())
}

func ofDir(arg string, dir *results.Dir) (c collected, err error) {
	if c.source, err = filepath.Abs(arg); err != nil {
		return c, err
	}
	all, err := allResults(dir)
	if err != nil {
		return c, err
	}
	for _, r := range all {
		c.add(r)
	}
	m := dir.Manifest()
	c.batch = m.ID
	for _, item := range m.Items {
		c.know(item.ID, item.Of, item.Agent)
	}
	c.open = func(_ context.Context, r jobs.Result) (io.ReadCloser, error) { return dir.Patch(r.ID) }
	return c, nil
}

func ofPool(ctx context.Context, p *pool.Pool, id string) (collected, error) {
	c := collected{source: id, batch: id, pool: p}
	c.open = func(ctx context.Context, r jobs.Result) (io.ReadCloser, error) { return p.Client.Patch(ctx, r.Job) }
	list, err := p.Jobs(ctx, operation.ListRequest{Batch: id, Outcome: jobs.Success})
	if err != nil {
		return c, err
	}
	for _, rec := range list {
		r, err := p.Client.Result(ctx, rec.ID)
		if err != nil {
			return c, fmt.Errorf("result of job %s: %w", rec.ID, err)
		}
		c.know(r.ID, rec.Labels[report.ItemLabel], rec.Labels[report.AgentLabel])
		if rec.Reviewed() == jobs.Rejected {
			c.left = append(c.left, r)
			continue
		}
		c.add(r)
	}
	return c, nil
}

func (c *collected) add(r jobs.Result) {
	if r.Outcome == jobs.Success && r.FilesChanged > 0 {
		c.list = append(c.list, r)
	}
}

// know notes what an item is a run of, and by which agent.
func (c *collected) know(item, of, agent string) {
	if c.agents == nil {
		c.agents, c.tries = map[string]string{}, map[string]string{}
	}
	c.agents[item] = agent
	if agent == "" && of != "" {
		c.tries[item] = of
	}
}

// best leaves the best of several tries of each item.
func (c *collected) best(ctx context.Context) error {
	of := map[string][]report.Item{}
	for _, r := range c.list {
		name := c.tries[r.ID]
		if name == "" {
			continue
		}
		stat, err := c.stat(ctx, r)
		if err != nil {
			return fmt.Errorf("the patch of item %s: %w", r.ID, err)
		}
		of[name] = append(of[name], report.Of("", r, &stat).Item)
	}
	isWorse := func(r jobs.Result) bool {
		tries := of[c.tries[r.ID]]
		return len(tries) > 0 && tries[report.Best(tries)].ID != r.ID
	}
	for _, r := range c.list {
		if isWorse(r) {
			c.worse = append(c.worse, r)
		}
	}
	c.list = slices.DeleteFunc(c.list, isWorse)
	return nil
}

// stat reads what a patch changes.
func (c *collected) stat(ctx context.Context, r jobs.Result) (stat patchstat.Stat, err error) {
	in, err := c.open(ctx, r)
	if err != nil {
		return stat, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return patchstat.Read(io.LimitReader(in, maxPatch))
}

// only leaves the results of one agent, of a batch that compares several; "" leaves all.
func (c *collected) only(agent string) error {
	if agent == "" {
		return nil
	}
	names := slices.Compact(slices.Sorted(maps.Values(c.agents)))
	if !slices.Contains(names, agent) {
		return cli.Usage("", "--agent: batch %s compares no agent %q; it has %s", c.batch, agent, cmp.Or(strings.Join(names, ", "), "none"))
	}
	other := func(r jobs.Result) bool { return c.agents[r.ID] != agent }
	c.list, c.left = slices.DeleteFunc(c.list, other), slices.DeleteFunc(c.left, other)
	return nil
}

// compares reports whether several agents ran each item.
func (c *collected) compares() bool {
	for _, agent := range c.agents {
		if agent != "" {
			return true
		}
	}
	return false
}

// none is the error for a batch without a patch.
func (c *collected) none() error {
	return cli.Fail(cli.ExitNotFound, "", "batch %s has no successful job that changed a file", c.batch)
}

// maxPatch bounds a patch that is applied.
const maxPatch = 1 << 30

func (c *collected) patch(ctx context.Context, r jobs.Result) (patch []byte, err error) {
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

// tell says how many results are left out.
func (c *collected) tell(shell cli.Shell) {
	if len(c.left) > 0 {
		shell.Progressf("%d rejected results are left out", len(c.left))
	}
	if len(c.worse) > 0 {
		shell.Progressf("%d results are left out, since another try of their item is better", len(c.worse))
	}
}

// of is the source of a series' patches. A result that was rejected after the series began,
// or has a better one since, is still in it.
func (c *collected) of(ctx context.Context, step series.Step) ([]byte, error) {
	for _, r := range slices.Concat(c.list, c.left, c.worse) {
		if r.Job == step.Job {
			return c.patch(ctx, r)
		}
	}
	return nil, fmt.Errorf("%s has no result of it any more", c.source)
}
