package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/dispatcher/api"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/queue"
)

// exists refuses the name of a queue or batch that the pool has nothing of.
func (p *pool) exists(ctx context.Context, kind jobs.HoldKind, name string) error {
	if !p.role.All() { // which may not look everywhere, and is refused what it may not do
		return nil
	}
	known, err := api.Names(ctx, p.queue, kind)
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

// jobs lists what a filter selects. That there is nothing of a queue or batch
// is no answer where that was mistyped.
func (p *pool) jobs(ctx context.Context, f queue.Filter) ([]jobs.Record, error) {
	list, err := p.queue.List(ctx, f)
	if err != nil || len(list) > 0 {
		return list, err
	}
	if f.Queue != "" {
		err = p.exists(ctx, jobs.HoldQueue, f.Queue)
	}
	if err == nil && f.Batch != "" {
		err = p.exists(ctx, jobs.HoldBatch, f.Batch)
	}
	return list, err
}
