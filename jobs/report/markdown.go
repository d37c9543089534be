package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/penstock-run/penstock/jobs"
)

// A Directory is what a report says of the results directory that it stands in.
type Directory struct {
	Input      string // what the items were read from
	Version    string // of the program
	Patch, Log func(item string) string
}

// Markdown writes the report for people. The directory is nil where the report is of a
// pool.
func (b *Report) Markdown(w io.Writer, dir *Directory) error {
	out := bufio.NewWriter(w) // its errors stick until its end
	p := func(format string, args ...any) { fmt.Fprintf(out, format, args...) }
	b.markdownHead(p, dir)
	b.markdownTallies(p)
	b.markdownAgents(p)
	b.markdownItems(p, dir)
	b.markdownOverlaps(p)
	return out.Flush()
}

type printer func(format string, args ...any)

func (b *Report) markdownHead(p printer, dir *Directory) {
	p("# Batch %s\n\n", b.Batch)
	p("**%s**", b.State)
	if b.Why != "" {
		p(": %s", Cell(b.Why, 400))
	}
	p(" · %d of %d items have a result · %s succeeded\n\n", b.Done, b.Items, b.Rate())
	p("| | |\n|---|---|\n")
	if dir != nil {
		p("| input | %s |\n", dir.Input)
	}
	for _, base := range b.Bases {
		p("| base | %s |\n", Cell(base, 300))
	}
	p("| started | %s |\n", b.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	p("| wall time | %s |\n", Seconds(b.WallSeconds))
	p("| cost | %s |\n", b.Cost())
	if len(b.Reviews) > 0 {
		p("| reviews | %s |\n", b.reviews())
	}
	if t := b.Tries; t != nil {
		p("| tries | %s |\n", t.Text())
	}
	u := b.Usage
	p("| tokens | %s in, %s out, %s read from the cache, %s written to it |\n", Number(u.Input), Number(u.Output), Number(u.CacheRead), Number(u.CacheWrite))
	if b.LimitTokens > 0 {
		p("| tokens of the budget | %s of %s (%.0f %%) |\n", Number(u.Total()), Number(b.LimitTokens), 100*float64(u.Total())/float64(b.LimitTokens))
	}
	p("| changes | +%d −%d lines, %d results without a change |\n", b.Added, b.Removed, b.Unchanged)
	if b.Unread > 0 {
		p("| not read | %d results: durations, changes and overlaps are of the others |\n", b.Unread)
	}
	if dir != nil {
		p("| penstock | %s |\n", Cell(dir.Version, 60))
	}
}

func (b *Report) markdownTallies(p printer) {
	p("\n## Outcomes\n\n| outcome | items |\n|---|---:|\n")
	for _, t := range b.Tallies() {
		p("| %s | %d |\n", t.Name, t.Count)
	}
	if len(b.Reasons) > 0 {
		p("\n| reason | items | what to do |\n|---|---:|---|\n")
		for _, r := range b.Reasons {
			p("| %s | %d | %s |\n", Cell(string(r.Reason), 60), r.Items, Cell(r.Advice, 300))
		}
	}
	if len(b.Stages) > 0 {
		p("\n## Durations\n\n| stage | median | 90 %% | longest |\n|---|---:|---:|---:|\n")
		for _, t := range b.Stages {
			p("| %s | %s | %s | %s |\n", t.Name, Seconds(t.P50), Seconds(t.P90), Seconds(t.Max))
		}
	}
}

func (b *Report) markdownItems(p printer, dir *Directory) {
	p("\n## Items\n\n| item | title | outcome | files | lines | time | cost | |\n|---|---|---|---:|---:|---:|---:|---|\n")
	for _, r := range b.Rows {
		if r.Outcome == "" {
			p("| %s | %s | missing | | | | | |\n", Cell(r.ID, 128), Cell(r.Title, 100))
			continue
		}
		outcome := Cell(string(r.Outcome), 20)
		if r.Reason != "" {
			outcome += ": " + Cell(string(r.Reason), 60)
		}
		if r.Best {
			outcome += ", **best**"
		}
		where := "job " + Cell(r.Job, 40)
		if dir != nil {
			where = fmt.Sprintf("[patch](%s) [log](%s)", dir.Patch(r.ID), dir.Log(r.ID))
		}
		p("| %s | %s | %s | %d | +%d −%d | %s | %s | %s |\n", Cell(r.ID, 128), Cell(r.Title, 100), outcome,
			r.Files, r.Added, r.Removed, Seconds(r.Seconds), Dollars(r.CostUSD), where)
	}
	if b.MoreRows > 0 {
		p("\n%d more items are not listed.\n", b.MoreRows)
	}
}

func (b *Report) markdownOverlaps(p printer) {
	if len(b.Files) > 0 {
		p("\n## Overlaps\n\nFiles that several patches touch:\n\n| file | patches | items |\n|---|---:|---|\n")
		for _, f := range b.Files {
			p("| %s | %d | %s |\n", Cell(f.Path, 200), f.Patches, Cell(f.Items(), 2000))
		}
		if b.MoreFiles > 0 {
			p("\n%d more files are not listed.\n", b.MoreFiles)
		}
		p("\nPatches that meet in a file; a merge of both would stop at those marked as conflicts:\n\n| items | files | conflicts |\n|---|---|---|\n")
		for _, pair := range b.Pairs {
			p("| %s, %s | %s | %s |\n", Cell(pair.A, 128), Cell(pair.B, 128), Cell(pair.Both(), 600), Cell(pair.Stops(), 600))
		}
		switch {
		case b.MorePairs > 0:
			p("\n%d more pairs are not listed.\n", b.MorePairs)
		case b.MorePairs < 0:
			p("\nThere are too many pairs to compare them all.\n")
		}
	}
	b.markdownMergeOrder(p)
	if len(b.Running) > 0 {
		p("\n## Overlaps of items that run\n\nAs workers have seen by now; a merge of both would stop at those marked as conflicts:\n\n| items | files | conflicts |\n|---|---|---|\n")
		for _, pair := range b.Running {
			p("| %s, %s | %s | %s |\n", Cell(pair.A, 128), Cell(pair.B, 128), Cell(pair.Both(), 600), Cell(pair.Stops(), 600))
		}
		if b.MoreRunning > 0 {
			p("\n%d more pairs are not listed.\n", b.MoreRunning)
		}
	}
	if len(b.RunsCode) > 0 {
		p("\n## Files that run code\n\nRead these before you apply a patch:\n\n| item | file | why |\n|---|---|---|\n")
		for _, f := range b.RunsCode {
			p("| %s | %s | %s |\n", Cell(f.ID, 128), Cell(f.Path, 200), f.Why)
		}
		if b.MoreRunsCode > 0 {
			p("\n%d more are not listed.\n", b.MoreRunsCode)
		}
	}
}

// Cost is what the items cost, and of how much where they have a budget.
func (b *Report) Cost() string {
	if b.LimitUSD > 0 {
		return fmt.Sprintf("$%.2f of $%.2f (%.0f %%)", b.CostUSD, b.LimitUSD, 100*b.CostUSD/b.LimitUSD)
	}
	return Dollars(b.CostUSD)
}

// reviews counts the results by what was decided about them.
func (b *Report) reviews() string {
	var words []string
	for _, state := range []jobs.ReviewState{jobs.Unreviewed, jobs.Accepted, jobs.Rejected, jobs.Delivered} {
		if n := b.Reviews[state]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(words, ", ")
}

// Items names the first items that change the file, and counts the others.
func (f File) Items() string { return some(f.IDs, 12, f.Patches) }

// Both names the first files that both patches change, and counts the others.
func (p Pair) Both() string { return some(p.Files, 5, len(p.Files)+p.MoreFiles) }

// Stops names the first files at which a merge would stop, and counts the others.
func (p Pair) Stops() string { return some(p.Conflicts, 5, len(p.Conflicts)+p.MoreConflicts) }

// some joins the first of a list and counts the others.
func some(list []string, most, all int) string {
	if all <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:min(len(list), most)], ", ") + fmt.Sprintf(" and %d more", all-min(len(list), most))
}

// mdSpecial is escaped so that a title is no link, no heading, no HTML, and
// mentions no user when the report is pasted into an issue.
var mdSpecial = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;", "#", "&#35;", "://", "&#58;//",
)

// Cell is text of strangers as it stands in a cell of a table of Markdown.
func Cell(s string, most int) string { return mdSpecial.Replace(Line(s, most)) }

// agentCell is an agent in a cell of a table. A name with a version would be the address of a mail.
func agentCell(name string) string {
	if !strings.Contains(name, "@") || strings.Contains(name, "`") {
		return Cell(name, 100)
	}
	return "`" + strings.ReplaceAll(Line(name, 100), "|", `\|`) + "`"
}

// markdownAgents shows the agents that the batch compares, and what each made of each item.
func (b *Report) markdownAgents(p printer) {
	if len(b.Agents) == 0 {
		return
	}
	p("\n## Agents\n\n| agent | succeeded | rate | 95 %% confidence | alone | best | checks passed | lines | time | tokens | cost | cost of a success |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, a := range b.Agents {
		p("| %s | %s | %s | %s | %d | %d | %s | %.0f | %s | %s | %s | %s |\n", agentCell(a.Agent), a.Solved(), a.Percent(), a.Interval(), a.Only, a.Best,
			a.Passed(), a.Lines, Seconds(a.Seconds), Number(a.Usage.Total()), Dollars(a.CostUSD), Dollars(a.CostOfSuccess()))
	}
	p("\nLines and time are medians. Alone: no other agent succeeded with the item. Best: no other agent's result of it is better.\n")
	if len(b.Comparisons) > 0 {
		p("\n| agents | both | only the first | only the second | neither | chance |\n|---|---:|---:|---:|---:|---:|\n")
		for _, d := range b.Comparisons {
			p("| %s, %s | %d | %d | %d | %d | %.3f |\n", agentCell(d.A), agentCell(d.B), d.Both, d.OnlyA, d.OnlyB, d.Neither, d.P)
		}
		p("\nOf items that both have ended. Chance is how likely so large a difference is if neither is better; below 0.05 it is taken for one.\n")
	}
	p("\n| item |")
	for _, a := range b.Agents {
		p(" %s |", agentCell(a.Agent))
	}
	p("\n|---|%s\n", strings.Repeat("---|", len(b.Agents)))
	for _, row := range b.Matrix() {
		p("| %s |", Cell(row.Of, 128))
		for _, run := range row.Runs {
			if run == nil {
				p(" |")
			} else {
				p(" %s |", strings.TrimSuffix(run.Name()+" · "+run.Facts(), " · "))
			}
		}
		p("\n")
	}
	if b.MoreRows > 0 {
		p("\nSome items are not listed.\n")
	}
}

// Name is the item's outcome as [Report.Tallies] names it.
func (i *Item) Name() string { return NameOf(i.Outcome) }

// Facts are checks, changed lines, time and cost of an item, for people; nothing while it has
// no result.
func (i *Item) Facts() string {
	if i.Outcome == "" {
		return ""
	}
	var words []string
	if i.Checks > 0 {
		words = append(words, fmt.Sprintf("%d/%d checks", i.ChecksPassed, i.Checks))
	}
	return strings.Join(append(words, fmt.Sprintf("+%d −%d", i.Added, i.Removed), Seconds(i.Seconds), Dollars(i.CostUSD)), " · ")
}
