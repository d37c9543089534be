package trialmerge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/cmd/internal/series"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/worker/checkout"
)

// A trial is one under way.
type trial struct {
	merges   *checkout.Merges
	changes  []change
	meetings []meeting
	all      bool // meetings are all there are
}

// errTime is why something was not tried, or was ended.
var errTime = errors.New("there was no time for it")

// Try merges the results of a batch in pairs and one after the other, in the repository of a work tree.
func Try(ctx context.Context, tree *checkout.Tree, batch Batch, limits Limits) (found Found, err error) {
	t := trial{}
	if t.merges, err = tree.Merges(); err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, t.merges.Close()) }()
	end := time.Now().Add(limits.Time)
	first := func() (context.Context, context.CancelFunc) {
		return context.WithDeadlineCause(ctx, end.Add(-limits.Time/4), errTime)
	}
	inTime, cancel := first()
	defer cancel()
	for _, r := range batch.Results {
		t.changes = append(t.changes, t.commit(inTime, r, batch.Source))
	}
	t.meet()
	if err := t.mergePairs(inTime, limits.Pairs); err != nil {
		return found, err
	}
	last, cancel := context.WithDeadlineCause(ctx, end, errTime)
	defer cancel()
	found = t.order(last)
	found.Batch = batch.ID
	if ctx.Err() != nil {
		return found, context.Cause(ctx)
	}
	return found, nil
}

// each limits the time of one step.
func each(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, maxEach, fmt.Errorf("it took longer than %s", maxEach))
}

// commit makes the commit of a result.
func (t *trial) commit(ctx context.Context, r jobs.Result, source series.Source) change {
	c := change{Result: r}
	ctx, cancel := each(ctx)
	defer cancel()
	if ctx.Err() != nil {
		c.why = context.Cause(ctx).Error()
		return c
	}
	patch, err := series.Fetch(ctx, series.Step{Job: r.Job, SHA256: r.PatchSHA256}, source)
	if err == nil && len(patch) > maxPatch {
		err = fmt.Errorf("its patch is larger than %s", jobs.Bytes(maxPatch))
	}
	if err == nil {
		c.stat, err = patchstat.Read(bytes.NewReader(patch))
	}
	if err == nil {
		c.commit, err = t.merges.Commit(ctx, r.BaseCommit, patch)
	}
	if err != nil {
		c.why = err.Error()
	}
	return c
}

// meet finds the pairs of changes that meet.
func (t *trial) meet() {
	var o patchstat.Overlaps
	number := map[string]int{}
	for i, c := range t.changes {
		number[c.Job] = i
		o.Add(c.Job, c.BaseCommit, c.stat)
	}
	pairs, all := o.Near()
	t.all = all
	for _, p := range pairs {
		a, b := number[p.A], number[p.B]
		t.meetings = append(t.meetings, meeting{a: min(a, b), b: max(a, b), common: p, state: mergeorder.Untried})
	}
}

// mergePairs merges the first pairs, as many at once as there are processors.
func (t *trial) mergePairs(ctx context.Context, most int) error {
	group := errgroup.Group{}
	group.SetLimit(runtime.GOMAXPROCS(0))
	tried := 0
	for i := range t.meetings {
		m := &t.meetings[i]
		a, b := t.changes[m.a], t.changes[m.b]
		switch {
		case a.commit == "" || b.commit == "":
			m.why = "one of them is on no commit"
			continue
		case tried == most:
			m.why = fmt.Sprintf("only %d pairs are tried", most)
			continue
		}
		tried++
		group.Go(func() error {
			return m.try(ctx, t.merges, a.commit, b.commit)
		})
	}
	return group.Wait()
}

// try merges a pair. The error is one that every pair would have.
func (m *meeting) try(ctx context.Context, merges *checkout.Merges, a, b string) error {
	ctx, cancel := each(ctx)
	defer cancel()
	err := context.Cause(ctx)
	if err == nil {
		m.merged, err = merges.Try(ctx, a, b)
	}
	switch {
	case errors.Is(err, checkout.ErrOldGit):
		return err
	case err != nil:
		m.why = err.Error()
	case m.merged.Clean:
		m.state = mergeorder.Merges
	default:
		m.state = mergeorder.Conflict
	}
	return nil
}
