package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Exists refuses the name of a queue or batch that the pool has nothing of.
func (p *Pool) Exists(ctx context.Context, kind jobs.HoldKind, name string) error {
	if !p.role.All() { // which may not look everywhere, and is refused what it may not do
		return nil
	}
	known, err := p.Names(ctx, kind)
	if err != nil || slices.Contains(known, name) {
		return err
	}
	hint := fmt.Sprintf("penstock %s ls lists them", kind)
	if like := input.Like(name, known); like != "" {
		hint = fmt.Sprintf("did you mean %s? %s", like, hint)
	} else if kind == jobs.HoldQueue && len(known) < 10 {
		hint = "there are " + input.List(known)
	}
	return cli.Fail(cli.ExitNotFound, hint, "there is no %s %q", kind, name)
}

// Names lists the queues or the batches that the pool has jobs, pauses or workers of.
func (p *Pool) Names(ctx context.Context, kind jobs.HoldKind) ([]string, error) {
	found := map[string]bool{}
	if kind == jobs.HoldBatch {
		for batch, err := range p.Client.Batches().List(ctx) {
			if err != nil {
				return nil, err
			}
			found[batch.Batch] = true
		}
		holds, err := p.Client.Queues().Holds(ctx)
		for _, h := range holds {
			found[h.Name] = found[h.Name] || h.Kind == kind
		}
		maps.DeleteFunc(found, func(_ string, there bool) bool { return !there })
		return slices.Sorted(maps.Keys(found)), err
	}
	found[jobs.Job{}.WithDefaults().Queue] = true
	for queue, err := range p.Client.Queues().List(ctx) {
		if err != nil {
			return nil, err
		}
		found[queue.Queue] = true
	}
	workers, err := p.Client.Workers(ctx)
	for _, w := range workers {
		for _, name := range w.Queues {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), err
}

// Jobs lists what a filter selects. That there is nothing of a queue or batch
// is no answer where that was mistyped.
func (p *Pool) Jobs(ctx context.Context, wanted operation.ListRequest) ([]jobs.Record, error) {
	list, err := Collect(p.Client.List(ctx, wanted))
	if err != nil || len(list) > 0 {
		return list, err
	}
	if wanted.Queue != "" {
		err = p.Exists(ctx, jobs.HoldQueue, wanted.Queue)
	}
	if err == nil && wanted.Batch != "" {
		err = p.Exists(ctx, jobs.HoldBatch, wanted.Batch)
	}
	return list, err
}
