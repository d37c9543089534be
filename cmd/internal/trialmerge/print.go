package trialmerge

import (
	"io"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/jobs/mergeorder"
)

// maxShownPairs bounds the table of pairs.
const maxShownPairs = 100

var turnView = cli.View[mergeorder.Turn]{
	Header: []string{"JOB", "ITEM", "STATE", "WITH", "CONFLICTS", "WHY"},
	Row: func(t mergeorder.Turn) []string {
		return []string{t.Job, t.Item, string(t.State), t.Others(), t.Stops(), t.Why}
	},
	ID: func(t mergeorder.Turn) string { return t.Job },
}

var pairView = cli.View[Pair]{
	Header: []string{"ITEM", "ITEM", "STATE", "FILES", "CONFLICTS", "WHY"},
	Row: func(p Pair) []string {
		return []string{p.A, p.B, string(p.State), mergeorder.WithMore(p.Files, p.MoreFiles), mergeorder.WithMore(p.Conflicts, p.MoreConflicts), p.Why}
	},
}

// Print prints what was found: for people the order and then the pairs.
func (found Found) Print(shell cli.Shell) error {
	shell.Progressf("%s", found.Counts())
	switch f := *shell.Format; f {
	case cli.Table:
	case cli.IDs:
		return turnView.List(shell.Out, f, found.Order)
	default:
		return cli.View[Found]{}.One(shell.Out, f, found)
	}
	if err := turnView.List(shell.Out, cli.Table, found.Order); err != nil || len(found.Pairs) == 0 {
		return err
	}
	if _, err := io.WriteString(shell.Out, "\n"); err != nil {
		return err
	}
	shown := found.Pairs[:min(len(found.Pairs), maxShownPairs)]
	if more := len(found.Pairs) - len(shown) + max(found.MorePairs, 0); more > 0 {
		shell.Progressf("%d more pairs are not listed; -o json lists up to %d", more, maxPairs)
	}
	if found.MorePairs < 0 {
		shell.Progressf("there are too many pairs to find all that change the same files")
	}
	return pairView.List(shell.Out, cli.Table, shown)
}
