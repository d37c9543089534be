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

// List prints what is read from the pool.
func List[T any](ctx context.Context, shell cli.Shell, view cli.View[T], read func(context.Context, *Pool) ([]T, error)) error {
	p, err := Open(ctx, shell, "read", Hooks{})
	if err != nil {
		return err
	}
	all, err := read(ctx, p)
	if err == nil {
		err = view.List(shell.Out, *shell.Format, all)
	}
	return errors.Join(err, p.Close())
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
