package transcript

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/summary"
)

// A BatchEnd is how a batch ended, with what earlier runs of it have done.
type BatchEnd struct {
	State    string // as its results directory names it
	Dir      string
	Complete bool // nothing is left to do
	Good     bool // and all of it succeeded
	Done     int
	Items    int
	Outcomes map[jobs.Outcome]int
	CostUSD  float64
}

// Finished writes how the batch ended, once, and what may be typed next.
func (b *Batch) Finished(e BatchEnd, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	style, mark := console.Green, "✓"
	switch {
	case !e.Complete:
		style, mark = console.Yellow, "■"
	case !e.Good:
		style, mark = console.Red, "✗"
	}
	words := summary.Join(fmt.Sprintf("batch %s in %s", e.State, summary.Took(now.Sub(b.began).Seconds())),
		fmt.Sprintf("%d of %d done", e.Done, e.Items), Tally(e.Outcomes), summary.Dollars(e.CostUSD))
	err := cmp.Or(b.screen.marked(style, mark, words),
		b.screen.block(look{indent: 2, style: console.Dim}, "results in "+e.Dir+" (report.html, report.md, patches/, logs/)"),
		b.command("batch report", e.Dir, "shows all results"))
	if id := b.changed; id != "" {
		err = cmp.Or(err, b.command("job diff", id, "shows the first change"), b.command("job apply", id, "brings it into your work tree"))
	}
	if id := b.failed; id != "" {
		err = cmp.Or(err, b.command("why", id, "explains the first job without success"), b.command("logs", id, "shows what its agent did"))
	}
	switch {
	case err != nil:
		return err
	case !e.Complete:
		return b.screen.block(look{indent: 2}, "The same command again continues with the remaining items.")
	case !e.Good:
		return b.screen.block(look{indent: 2}, "The same command with --redo failed runs the items without success again.")
	}
	return nil
}

// command writes a line to type about a job or a directory.
func (b *Batch) command(verb, about, what string) error {
	b.screen.id = about
	return b.screen.command(verb, "", what)
}
