package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/record"
)

const (
	// cancelledFor is how long the jobs end at once that a cancelled batch submits:
	// the program that submits them may not have noticed yet.
	cancelledFor = 24 * time.Hour
	// cancelAtOnce and cancelsMost bound what one request cancels of a batch.
	cancelAtOnce = 16
	cancelsMost  = 200
)

// batches returns what the pool knows of each batch, or of the one that is named,
// the oldest first.
func (n counts) batches(ctx context.Context, name string) ([]operation.Batch, error) {
	list, err := n.catalog.Batches(ctx, name)
	if err != nil {
		return nil, err
	}
	holds, err := n.queue.Holds().List(ctx)
	if err != nil {
		return nil, err
	}
	for i, h := range holds {
		if at := slices.IndexFunc(list, func(b operation.Batch) bool { return b.Batch == h.Name }); at >= 0 && h.Kind == jobs.HoldBatch {
			list[at].Paused = &holds[i]
		}
	}
	slices.SortFunc(list, func(a, b operation.Batch) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), cmp.Compare(a.Batch, b.Batch))
	})
	return list, nil
}

func (s *Server) batchList(ctx context.Context, c caller, r operation.PageRequest) (operation.BatchPage, error) {
	list, err := s.counts.batches(ctx, "")
	if err != nil {
		return operation.BatchPage{}, err
	}
	place := func(b operation.Batch) mark { return mark{b.Batch, b.Submitted.UnixNano()} }
	list = afterMark(list, r.After, place)
	part, more, err := page(list, r.Limit, c.room)
	answer := operation.BatchPage{Batches: part}
	if more {
		answer.Next = place(part[len(part)-1]).cursor()
	}
	return answer, err
}

func (s *Server) batchGet(ctx context.Context, _ caller, r operation.Named) (operation.Batch, error) {
	list, err := s.counts.batches(ctx, r.Name)
	if err != nil {
		return operation.Batch{}, err
	}
	if len(list) == 0 {
		return operation.Batch{}, fmt.Errorf("batch %q: %w: the pool has no job of it", r.Name, jobs.ErrNotFound)
	}
	return list[0], nil
}

// batchCancel cancels jobs of a batch that have not finished, as many as one
// request may.
func (s *Server) batchCancel(ctx context.Context, c caller, r operation.Named) (operation.CancelledBatch, error) {
	answer := operation.CancelledBatch{Jobs: []jobs.Record{}}
	if err := jobs.CheckToken("name", r.Name); err != nil {
		return answer, err
	}
	known, err := s.catalog.Batches(ctx, r.Name)
	if err != nil || len(known) == 0 {
		return answer, err
	}
	until := time.Now().Add(cancelledFor).UTC()
	// First the jobs that are not there yet, then those that are, so that none slips
	// through between.
	if err := s.cfg.Queue.Hold(ctx, jobs.Hold{Kind: jobs.HoldBatch, Name: r.Name, By: c.name(), Until: &until, Cancel: true}); err != nil {
		return answer, err
	}
	open, err := s.catalog.All(ctx, record.Filter{Batch: r.Name, Unfinished: true})
	if err != nil {
		return answer, err
	}
	open = slices.DeleteFunc(open, func(rec jobs.Record) bool { return rec.Cancel != nil })
	if answer.More = len(open) > cancelsMost; answer.More {
		open = open[:cancelsMost]
	}
	cancelled := make([]*jobs.Record, len(open))
	var g errgroup.Group
	g.SetLimit(cancelAtOnce)
	for i, rec := range open {
		g.Go(func() error {
			now, err := s.cfg.Queue.Cancel(ctx, rec.ID, c.name())
			if errors.Is(err, jobs.ErrFinished) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("cancel job %s: %w", rec.ID, err)
			}
			cancelled[i] = &now
			return nil
		})
	}
	err = g.Wait()
	for _, rec := range cancelled {
		if rec != nil {
			answer.Jobs = append(answer.Jobs, *rec)
		}
	}
	return answer, err
}
