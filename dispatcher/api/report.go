package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/artifact"
	"github.com/penstock-run/penstock/jobs/operation"
	"github.com/penstock-run/penstock/jobs/overlap"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/record"
	"github.com/penstock-run/penstock/jobs/report"
)

const (
	// reportReads and reportTime bound the results and patches that one report is made of:
	// those of a large batch are more than the time of a request. What was not read is
	// counted by its record.
	reportReads = 2000
	reportTime  = 6 * time.Second
	// reportBytes bounds the patches: agents write them, and a report keeps which lines
	// they change.
	reportBytes = 64 << 20
	// reportsAtOnce bounds the reports that are made at once, and readsAtOnce what each of
	// them reads at once.
	reportsAtOnce = 2
	readsAtOnce   = 8
)

// errTooMuch ends the reading of a patch that the report has no room for.
var errTooMuch = errors.New("the patches of the batch are too long to read them all")

// batchReport reports what the jobs of a batch came to, of records, results and patches.
func (s *Server) batchReport(ctx context.Context, c caller, r operation.Named) (report.Report, error) {
	select {
	case s.reports <- struct{}{}:
		defer func() { <-s.reports }()
	case <-ctx.Done():
		return report.Report{}, &jobs.CodedError{Code: jobs.CodeBusy, Message: "other reports of batches are being made: ask again later", Cause: ctx.Err()}
	}
	list, err := s.catalog.All(ctx, record.Filter{Batch: r.Name})
	if err != nil {
		return report.Report{}, err
	}
	if len(list) == 0 {
		return report.Report{}, fmt.Errorf("batch %q: %w: the pool has no job of it", r.Name, jobs.ErrNotFound)
	}
	reader := reportReader{results: s.cfg.Dispatcher.Result, store: s.cfg.Store}
	reader.room.Store(reportBytes)
	entries, err := reader.entries(ctx, list)
	if err != nil {
		return report.Report{}, err
	}
	limit, err := s.counts.batchLimit(ctx, r.Name)
	if err != nil {
		return report.Report{}, err
	}
	begun := times(r.Name, list)
	for _, b := range limit {
		begun.LimitUSD, begun.LimitTokens = b.USD, b.Tokens
	}
	build := report.New(begun)
	for _, entry := range entries {
		build.Add(entry)
	}
	if err := addRunning(ctx, build, overlap.Of(s.cfg.Queue.Workers()), list); err != nil {
		return report.Report{}, fmt.Errorf("what jobs that run have in common: %w", err)
	}
	made := build.Report()
	made.State, made.Why = stateOf(made)
	if !made.Fit(c.room) {
		return report.Report{}, &jobs.CodedError{Code: jobs.CodeTooLarge, Message: fmt.Sprintf("the report of batch %s is larger than the %d bytes that a message holds", r.Name, c.room)}
	}
	return *made, nil
}

// times begins a report with when the jobs of a batch began and ended.
func times(name string, list []jobs.Record) report.Report {
	b, last := report.Report{Batch: name, Started: list[0].Submitted}, time.Time{}
	for _, rec := range list {
		switch {
		case rec.State != jobs.Finished:
			last = time.Now()
		case rec.Finished != nil && rec.Finished.After(last):
			last = *rec.Finished
		}
	}
	b.WallSeconds = max(0, last.Sub(b.Started).Seconds())
	return b
}

// stateOf says how a batch stands, as a results directory would.
func stateOf(b *report.Report) (state, why string) {
	failed := b.Failed()
	switch {
	case b.Missing > 0:
		return "running", ""
	case failed == 0:
		return "completed", ""
	}
	return "failed", fmt.Sprintf("%d of %d items did not succeed", failed, b.Different())
}

// A reportReader reads what one report is made of.
type reportReader struct {
	results func(context.Context, jobs.Record) (jobs.Result, error)
	store   *artifact.Store
	room    atomic.Int64 // bytes of patches that may still be read
}

// entries are the jobs of a batch, with the results and patches of those that have ended,
// as many as can be read.
func (r *reportReader) entries(ctx context.Context, list []jobs.Record) ([]report.Entry, error) {
	reading, done := context.WithTimeout(ctx, reportTime)
	defer done()
	entries := make([]report.Entry, len(list))
	var g errgroup.Group
	g.SetLimit(readsAtOnce)
	reads := 0
	for i, rec := range list {
		entries[i] = ofRecord(rec)
		if rec.State != jobs.Finished || reads == reportReads {
			continue
		}
		reads++
		g.Go(func() error {
			if reading.Err() != nil || r.room.Load() <= 0 {
				return nil // its record is in the report
			}
			entry, err := r.entry(reading, rec)
			switch {
			case err == nil:
				entries[i] = entry
			case reading.Err() == nil && !errors.Is(err, errTooMuch):
				return fmt.Errorf("job %s: %w", rec.ID, err)
			}
			return nil
		})
	}
	err := g.Wait()
	return entries, errors.Join(err, ctx.Err())
}

// ofRecord is what the record of a job tells of it.
func ofRecord(rec jobs.Record) report.Entry {
	entry := report.Entry{Item: report.Item{ID: name(rec), Title: rec.Title, Job: rec.ID}}
	entry.Label(rec.Labels)
	if rec.State != jobs.Finished {
		return entry
	}
	spent := rec.SpentBefore.Add(rec.LastAttempt)
	entry.Review = rec.Reviewed()
	entry.Outcome, entry.Reason, entry.CostUSD, entry.Usage = rec.Outcome, rec.Reason, spent.CostUSD, spent.Usage
	if rec.Finished != nil {
		entry.Seconds = rec.Finished.Sub(rec.Submitted).Seconds()
	}
	return entry
}

// entry is a finished job with its result and its patch.
func (r *reportReader) entry(ctx context.Context, rec jobs.Record) (report.Entry, error) {
	result, err := r.results(ctx, rec)
	if err != nil {
		return report.Entry{}, err
	}
	var changes patchstat.Stat
	content, err := r.store.Get(ctx, rec.ID, rec.Epoch, jobs.PatchName)
	switch {
	case err == nil:
		changes, err = patchstat.Read(rationed{content, &r.room})
		err = errors.Join(err, content.Close())
	case errors.Is(err, jobs.ErrNotFound): // it changed nothing, or there was nothing to compare with
		err = nil
	}
	entry := report.Of(rec.Title, result, &changes)
	entry.ID, entry.Review = name(rec), rec.Reviewed()
	entry.Label(rec.Labels)
	return entry, err
}

// rationed reads what all readers together have room for.
type rationed struct {
	from io.Reader
	room *atomic.Int64
}

func (r rationed) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.room.Add(int64(-n)) < 0 {
		return n, errTooMuch
	}
	return n, err
}
