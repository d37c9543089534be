package main

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
	"github.com/penstock-run/penstock/jobs"
)

// count reports how an item ended, and stops the batch if continuing is pointless.
func (b *batchRun) count(r jobs.Result) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.outcomes[r.Outcome]++
	b.cost += r.CostUSD
	delete(b.running, r.Job)
	b.tell(r)
	bad := 0
	for outcome, n := range maps.All(b.outcomes) {
		if outcome != jobs.Success && outcome != jobs.Skip {
			bad += n
		}
	}
	switch {
	case b.hopeless(r):
		return cli.Fail(cli.ExitStopped, jobs.Reasons[r.Reason].Advice, "stopped: every job would end like item %s: %s: %s", r.ID, r.Reason, r.Message)
	case b.max > 0 && bad >= b.max:
		return cli.Fail(cli.ExitStopped, "run the same command again to continue", "stopped: %d jobs did not succeed (--max-failures %d)", bad, b.max)
	}
	return nil
}

// tell writes how an item ended. Its caller holds the lock.
func (b *batchRun) tell(r jobs.Result) {
	if b.board != nil {
		_ = b.board.Ended(r) // as in draw
		return
	}
	line := fmt.Sprintf("%-12s %-8s %6.1fs  %d files", r.ID, r.Outcome, r.Durations.Total, r.FilesChanged)
	if r.Reason != "" {
		line += fmt.Sprintf("  %s: %s", r.Reason, console.FirstLine(r.Message))
	}
	b.lines.Say(line)
	b.lines.Status(b.status())
}

// luckless is how many items in a row may end for a reason that one worker may
// have and another not, once an item has succeeded.
const luckless = 3

// hopeless reports whether all that is left would end as r did. Its caller
// holds the lock.
func (b *batchRun) hopeless(r jobs.Result) bool {
	cause := jobs.Reasons[r.Reason]
	if !cause.Hopeless() {
		b.row = 0
		return false
	}
	b.row++
	if cause.Fault == jobs.FaultPool && b.outcomes[jobs.Success] > 0 && b.row < luckless {
		return false
	}
	left := b.dir.Missing()
	for _, item := range left {
		if !cause.Meets(b.items[r.ID], b.items[item]) {
			return false
		}
	}
	return len(left) > 0
}

// note keeps true what is shown of the jobs that run.
func (b *batchRun) note(rec jobs.Record) {
	if b.board != nil {
		b.board.Note(rec, time.Now())
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.running, rec.ID)
	if rec.State == jobs.Executing {
		b.running[rec.ID] = true
	}
	b.lines.Status(b.status())
}

func (b *batchRun) status() string {
	words := fmt.Sprintf("%d running", len(b.running))
	if t := transcript.Tally(b.outcomes); t != "" {
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
	case code == cli.ExitInterrupted:
		state = results.Interrupted
	default:
		state, why = results.Interrupted, err.Error()
	}
	if report := b.dir.Finish(state, why); report != nil {
		err = errors.Join(err, fmt.Errorf("write the report: %w", report))
	}
	m := b.dir.Manifest()
	b.tellEnd(m, err == nil)
	if b.format != cli.Table {
		if listed := b.list(); listed != nil {
			err = errors.Join(err, listed)
		}
	}
	if err != nil {
		return err
	}
	if code := cli.OutcomeCode(m.Totals.Outcomes); code != cli.ExitOK {
		if b.board != nil {
			return &cli.Error{Code: code, Err: errors.New("")} // the screen has just shown it
		}
		return cli.Fail(code, "penstock batch report "+b.where, "some jobs did not succeed: %s", transcript.Tally(m.Totals.Outcomes))
	}
	return nil
}

// tellEnd says how the batch ended, and where its results are.
func (b *batchRun) tellEnd(m results.Manifest, complete bool) {
	if b.board == nil {
		b.err.Printf("penstock: batch %s: %d of %d done: %s\n", m.State, m.Totals.Done, m.Totals.Items, transcript.Tally(m.Totals.Outcomes))
		b.err.Printf("penstock: results in %s (report.html, report.md, patches/, logs/)\n", b.where)
		return
	}
	_ = b.board.Finished(transcript.BatchEnd{
		State: string(m.State), Dir: b.where, Complete: complete, Good: cli.OutcomeCode(m.Totals.Outcomes) == cli.ExitOK,
		Done: m.Totals.Done, Items: m.Totals.Items, Outcomes: m.Totals.Outcomes, CostUSD: m.Totals.CostUSD,
	}, time.Now())
}

func (b *batchRun) list() error {
	list, err := allResults(b.dir)
	if err != nil {
		return err
	}
	return jobview.Results.List(b.out, b.format, list)
}
