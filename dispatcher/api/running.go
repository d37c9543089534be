package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/report"
)

// runningReads bounds the jobs whose overlaps a report reads.
const runningReads = 200

// beside is what a job of a batch has in common with another, by their names in the report.
type beside struct {
	item, other string
	found       jobs.Overlap
}

// addRunning adds what the jobs of a batch that run have in common with others, as the pool has noted by now:
// each pair once, those with the same lines first.
func addRunning(ctx context.Context, build *report.Builder, store overlap.Store, list []jobs.Record) error {
	of := map[string]jobs.Record{}
	var run []jobs.Record
	for _, rec := range list {
		of[rec.ID] = rec
		if rec.State != jobs.Finished && rec.Attempt > 0 && len(run) < runningReads {
			run = append(run, rec)
		}
	}
	var mu sync.Mutex
	var all []beside
	seen := map[[2]string]bool{}
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for _, rec := range run {
		g.Go(func() error {
			found, err := store.Found(reading, rec.ID)
			if err != nil {
				return fmt.Errorf("job %s: %w", rec.ID, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, o := range found {
				other, in := of[o.Job]
				key := [2]string{min(rec.ID, o.Job), max(rec.ID, o.Job)}
				if !seen[key] && (!in || matters(rec, other)) {
					all = append(all, beside{name(rec), cmp.Or(name(other), o.Job), o})
				}
				seen[key] = true
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.SortFunc(all, func(x, y beside) int {
		return cmp.Or(cmp.Compare(len(y.found.Lines), len(x.found.Lines)), strings.Compare(x.item, y.item), strings.Compare(x.other, y.other))
	})
	for _, b := range all {
		build.AddRunning(b.item, b.other, b.found)
	}
	return nil
}

// matters reports whether it matters what two jobs of a batch have in common: runs of one item meet by nature,
// and of one that did not succeed nothing is merged.
func matters(rec, other jobs.Record) bool {
	item := rec.Labels[report.ItemLabel]
	return (other.State != jobs.Finished || other.Outcome == jobs.Success) && (item == "" || item != other.Labels[report.ItemLabel])
}

// name is how a report names a job of its batch.
func name(rec jobs.Record) string { return cmp.Or(rec.Item, rec.ID) }
