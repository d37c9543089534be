package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/dispatcher/intake"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// unbounded is how many jobs of a batch wait in somebody else's pool at once
// where nobody said how many may.
const unbounded = 1000

// A batchRun is one call of batch run: the items that are missing, each from
// its submission to its line in the results.
type batchRun struct {
	*app
	pool  *pool
	dir   *results.Dir
	items map[string]jobs.Job
	where string // the directory, as the user named it
	max   int    // failures that are too many; 0 for no bound
	bar   *cli.Progress

	waits map[string]chan jobs.Record // by item; filled before anything is submitted
	stop  context.CancelCauseFunc

	mu       sync.Mutex
	outcomes map[jobs.Outcome]int
	running  map[string]bool
	cost     float64
}

func (a *app) runBatch(ctx context.Context, items intake.Items, flags batchFlags) error {
	bad := invalidItems(items.Name, items.Errors())
	if bad != nil {
		return bad
	}
	dir, err := results.Open(flags.out, manifest(items, flags))
	if err != nil {
		return cli.Usage("", "%w", err)
	}
	b := &batchRun{app: a, dir: dir, where: flags.out, max: flags.maxFailures, outcomes: map[jobs.Outcome]int{}, running: map[string]bool{}}
	if flags.redo != "" {
		if _, err := dir.Redo(flags.redo); err != nil {
			return errors.Join(cli.Usage("use failed, error, all or item ids", "--redo: %w", err), dir.Close())
		}
	}
	b.items = map[string]jobs.Job{}
	for _, item := range items.InBatch(dir.Manifest().ID, dir.Key).Items {
		b.items[item.ID] = item.Job
	}
	err = b.run(ctx, flags.maxParallel)
	return errors.Join(err, dir.Close())
}

// manifest describes the batch, so that the directory can tell whether a
// later call is the same one.
func manifest(items intake.Items, flags batchFlags) results.Manifest {
	j := flags.job
	m := results.Manifest{
		ID: jobs.NewID(), Version: release(),
		Input: results.Input{Name: items.Name, SHA256: items.SHA256, Format: items.Format, Items: items.Total},
		Options: map[string]string{
			"agent": agentName(items), "model": j.Agent.Model, "repo": j.Repo.URL, "ref": j.Repo.Ref,
			"filter": flags.read.Filter, "slice": flags.read.Slice, "limit": strconv.Itoa(flags.read.Limit),
			"shuffle": strconv.FormatBool(flags.read.Shuffle), "prompt-template": flags.template, "jobs": digest(items),
		},
	}
	for _, item := range items.Items {
		m.Items = append(m.Items, results.Item{ID: item.ID, Title: item.Job.Title()})
	}
	return m
}

// agentName is the agent of the batch; items may name others.
func agentName(items intake.Items) string {
	for _, item := range items.Items {
		if item.Err == nil {
			return item.Job.Agent.Name
		}
	}
	return ""
}

// digest tells whether a later call would run the same jobs: with another
// command or prompt, the results that are there would not be its own.
func digest(items intake.Items) string {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	for _, item := range items.Items {
		job := item.Job
		job.RunAt = nil     // "in two hours" is another time in each call
		_ = enc.Encode(job) // a hash takes everything, and a job is plain values
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// run does what is missing and writes the reports, also when it is stopped.
func (b *batchRun) run(ctx context.Context, parallel int) error {
	missing := b.dir.Missing()
	if len(missing) > 0 {
		working, err := b.begin(ctx, parallel)
		if err != nil {
			return err
		}
		err = b.work(working, missing, b.window(parallel))
		err = errors.Join(err, b.pool.close())
		return b.finish(err)
	}
	return b.finish(nil)
}

// begin opens the pool; where it is our own, a worker runs in it.
func (b *batchRun) begin(ctx context.Context, parallel int) (_ context.Context, err error) {
	b.pool, err = b.open(ctx, "batch run", hooks{})
	if err != nil {
		return nil, err
	}
	return b.serveOwn(ctx, b.pool, slots(parallel))
}

func (b *batchRun) window(parallel int) int {
	switch {
	case parallel > 0:
		return parallel
	case b.pool.server != nil:
		return slots(0)
	}
	return unbounded
}

func (b *batchRun) work(ctx context.Context, missing []string, window int) error {
	ctx, b.stop = context.WithCancelCause(ctx)
	defer b.stop(nil)
	b.bar = cli.NewProgress(b.err, b.progress, len(missing))
	defer b.bar.Close()
	b.waits = map[string]chan jobs.Record{}
	for _, item := range missing {
		b.waits[item] = make(chan jobs.Record, 1)
	}
	watching, done := context.WithCancel(ctx)
	var watch errgroup.Group
	watch.Go(func() error { return b.watch(watching) })

	var g errgroup.Group
	g.SetLimit(window)
	for _, item := range missing {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := b.item(ctx, item); err != nil {
				b.stop(err)
			}
			return nil
		})
	}
	err := g.Wait()
	done()
	err = cause(ctx, errors.Join(err, watch.Wait()))
	if cli.Code(err) == cli.ExitStopped {
		err = errors.Join(err, b.cancelRest(context.WithoutCancel(ctx)))
	}
	return err
}

// cancelRest ends what a batch that was stopped has left in the pool.
func (b *batchRun) cancelRest(ctx context.Context) error {
	list, err := b.pool.queue.List(ctx, queue.Filter{Batch: b.dir.Manifest().ID})
	if err != nil {
		return fmt.Errorf("cancel the rest: %w", err)
	}
	for _, rec := range list {
		if rec.State == jobs.Finished {
			continue
		}
		if _, err := b.pool.queue.Cancel(ctx, rec.ID, "batch"); err != nil && !errors.Is(err, jobs.ErrFinished) {
			return fmt.Errorf("cancel job %s: %w", rec.ID, err)
		}
	}
	return nil
}

// watch hands each finished job to who waits for it.
func (b *batchRun) watch(ctx context.Context) error {
	for rec, err := range b.pool.queue.Watch(ctx, queue.Filter{Batch: b.dir.Manifest().ID}) {
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			b.stop(err)
			return nil
		}
		b.note(rec)
		wait, ours := b.waits[rec.Item]
		// A job of an earlier round of the item has another key.
		if !ours || rec.State != jobs.Finished || rec.Key != b.items[rec.Item].Key {
			continue
		}
		select {
		case wait <- rec:
		default: // told twice
		}
	}
	return nil
}

// item carries one item from its submission to its line in the results.
func (b *batchRun) item(ctx context.Context, item string) error {
	if _, err := b.pool.dispatcher.Submit(ctx, b.items[item], "batch"); err != nil {
		return cause(ctx, fmt.Errorf("item %s: %w", item, err))
	}
	select {
	case <-ctx.Done():
		return nil
	case rec := <-b.waits[item]:
		return b.collect(ctx, rec)
	}
}

// collect writes a finished job's files into the results directory.
func (b *batchRun) collect(ctx context.Context, rec jobs.Record) error {
	result, err := b.pool.dispatcher.Result(ctx, rec)
	if err != nil {
		return fmt.Errorf("item %s: %w", rec.Item, err)
	}
	var patch bytes.Buffer
	if err := b.pool.patch(ctx, rec, &patch); err != nil {
		return fmt.Errorf("item %s: %w", rec.Item, err)
	}
	err = b.dir.Add(ctx, result, &patch, b.pool.log.Read(ctx, rec.Session, 1))
	if err != nil {
		return cause(ctx, fmt.Errorf("item %s: %w", rec.Item, err))
	}
	return b.count(result)
}

// count tells how an item ended, and stops the batch where going on is of no
// use.
func (b *batchRun) count(r jobs.Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[r.Outcome]++
	b.cost += r.CostUSD
	delete(b.running, r.Job)
	line := fmt.Sprintf("%-12s %-8s %6.1fs  %d files", r.ID, r.Outcome, r.Durations.Total, r.FilesChanged)
	if r.Reason != "" {
		line += fmt.Sprintf("  %s: %s", r.Reason, firstLine(r.Message))
	}
	b.bar.Step(cli.Plain(line))
	b.bar.Status(b.words())
	bad := 0
	for outcome, n := range maps.All(b.outcomes) {
		if outcome != jobs.Success && outcome != jobs.Skip {
			bad += n
		}
	}
	switch {
	case jobs.Reasons[r.Reason].Hopeless:
		return cli.Fail(cli.ExitStopped, jobs.Reasons[r.Reason].Advice, "stopped: every job would end as item %s did: %s: %s", r.ID, r.Reason, r.Message)
	case b.max > 0 && bad >= b.max:
		return cli.Fail(cli.ExitStopped, "run the same command again to go on", "stopped: %d jobs did not succeed (--max-failures %d)", bad, b.max)
	}
	return nil
}

// note keeps the words beside the bar true.
func (b *batchRun) note(rec jobs.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, rec.ID)
	if rec.State == jobs.Executing {
		b.running[rec.ID] = true
	}
	b.bar.Status(b.words())
}

func (b *batchRun) words() string {
	words := fmt.Sprintf("%d running", len(b.running))
	if t := tally(b.outcomes); t != "" {
		words += ", " + t
	}
	if b.cost > 0 {
		words += fmt.Sprintf(", $%.2f", b.cost)
	}
	return words
}

// finish writes the reports and says how the batch ended.
func (b *batchRun) finish(err error) error {
	state, why := results.Completed, ""
	switch code := cli.Code(err); {
	case err == nil:
	case code == cli.ExitStopped:
		state, why = results.Stopped, err.Error()
	case errors.Is(err, context.Canceled):
		state = results.Interrupted
		err = cli.Fail(cli.ExitInterrupted, "run the same command again to go on", "interrupted; what is done is kept")
	default:
		state, why = results.Interrupted, err.Error()
	}
	if report := b.dir.Finish(state, why); report != nil {
		err = errors.Join(err, fmt.Errorf("write the report: %w", report))
	}
	m := b.dir.Manifest()
	fmt.Fprintf(b.err, "penstock: batch %s: %d of %d done: %s\n", m.State, m.Totals.Done, m.Totals.Items, tally(m.Totals.Outcomes))
	fmt.Fprintf(b.err, "penstock: results in %s (report.html, report.md, patches/, logs/)\n", b.where)
	if b.format != cli.Table {
		if listed := b.list(); listed != nil {
			err = errors.Join(err, listed)
		}
	}
	if err != nil {
		return err
	}
	if code := cli.OutcomeCode(m.Totals.Outcomes); code != cli.ExitOK {
		return cli.Fail(code, "penstock batch report "+b.where, "some jobs did not succeed: %s", tally(m.Totals.Outcomes))
	}
	return nil
}

func (b *batchRun) list() error {
	var list []jobs.Result
	for r, err := range b.dir.Results() {
		if err != nil {
			return fmt.Errorf("read the results: %w", err)
		}
		list = append(list, r)
	}
	return resultView.List(b.out, b.format, list)
}
