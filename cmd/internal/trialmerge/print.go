package trialmerge

import (
	"fmt"
	"io"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// maxShownPairs bounds the table of pairs.
const maxShownPairs = 100

// Counts says how many results merge.
func (found Found) Counts() string {
	said := fmt.Sprintf("%d of %d results merge one after the other", found.Merge, len(found.Order))
	if found.Stop > 0 {
		said += fmt.Sprintf(", %d conflict with those before them", found.Stop)
	}
	if found.Untried > 0 {
		said += fmt.Sprintf(", %d were not tried", found.Untried)
	}
	if found.Fewest && found.Stop > 0 {
		said += "; no order has fewer conflicts"
	}
	return said
}

var turnView = cli.View[Turn]{
	Header: []string{"JOB", "ITEM", "STATE", "WITH", "CONFLICTS", "WHY"},
	Row: func(t Turn) []string {
		return []string{t.Job, t.Item, string(t.State), strings.Join(t.With, ", "), withMore(t.Conflicts, t.MoreConflicts), t.Why}
	},
	ID: func(t Turn) string { return t.Job },
}

var pairView = cli.View[Pair]{
	Header: []string{"ITEM", "ITEM", "STATE", "FILES", "CONFLICTS", "WHY"},
	Row: func(p Pair) []string {
		return []string{p.A, p.B, string(p.State), withMore(p.Files, p.MoreFiles), withMore(p.Conflicts, p.MoreConflicts), p.Why}
	},
}

func withMore(names []string, more int) string {
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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
