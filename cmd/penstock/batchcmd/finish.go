package batchcmd

import (
	"errors"
	"fmt"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/jobview"
	"github.com/penstock-run/penstock/cmd/internal/results"
	"github.com/penstock-run/penstock/cmd/internal/transcript"
)

// finish writes the reports and says how the batch ended.
func (b *batch) finish(shown display, err error) error {
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
	code := cli.OutcomeCode(m.Totals.Outcomes)
	if m.Totals.Failed == 0 { // also where some tries of an item failed
		code = cli.ExitOK
	}
	shown.finished(transcript.BatchEnd{
		State: string(m.State), Dir: b.where, Complete: err == nil, Good: code == cli.ExitOK,
		Done: m.Totals.Done, Items: m.Totals.Items, Outcomes: m.Totals.Outcomes, CostUSD: m.Totals.CostUSD,
	})
	if *b.shell.Format != cli.Table {
		if listed := b.list(); listed != nil {
			err = errors.Join(err, listed)
		}
	}
	switch {
	case err != nil:
		return err
	case code == cli.ExitOK:
		return nil
	case shown.conclusive():
		return &cli.Error{Code: code, Err: errors.New("")} // the screen has just shown it
	}
	return cli.Fail(code, "penstock batch report "+b.where, "some jobs did not succeed: %s", transcript.Tally(m.Totals.Outcomes))
}

func (b *batch) list() error {
	list, err := results.All(b.dir)
	if err != nil {
		return err
	}
	return jobview.Results.List(b.shell.Out, *b.shell.Format, list)
}
