package pool

import (
	"context"
	"errors"
	"iter"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// Collect reads a list of the pool to its end.
func Collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// With opens the pool for fn, as Open does, and closes it.
func With(ctx context.Context, shell cli.Shell, owner string, fn func(p *Pool) error) error {
	p, err := Open(ctx, shell, owner, Hooks{})
	if err != nil {
		return err
	}
	return errors.Join(fn(p), p.Close())
}

// List prints what is read from the pool.
func List[T any](ctx context.Context, shell cli.Shell, view cli.View[T], read func(context.Context, *Pool) ([]T, error)) error {
	return With(ctx, shell, "read", func(p *Pool) error {
		all, err := read(ctx, p)
		if err != nil {
			return err
		}
		return view.List(shell.Out, *shell.Format, all)
	})
}

// Hold pauses a queue or a batch, whose name is known to be right.
func (p *Pool) Hold(ctx context.Context, h jobs.Hold) (err error) {
	request := operation.PauseRequest{Name: h.Name, Until: h.Until, Force: true}
	if h.Kind == jobs.HoldBatch {
		_, err = p.Client.Batches().Pause(ctx, request)
	} else {
		_, err = p.Client.Queues().Pause(ctx, request)
	}
	return err
}
