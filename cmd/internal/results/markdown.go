package results

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// maxRunsListed bounds how many files that run code are named.
const maxRunsListed = 100

// markdown writes report.md. Errors of the buffer stick until its end.
func (s *summary) markdown(w io.Writer) error {
	out := bufio.NewWriter(w)
	p := func(format string, args ...any) { fmt.Fprintf(out, format, args...) }
	p("# Batch %s\n\n", s.ID)
	p("**%s**", s.State)
	if s.Why != "" {
		p(": %s", md(s.Why, 400))
	}
	p(" · %d of %d items have a result · %s succeeded\n\n", s.Totals.Done, s.Totals.Items, s.rate())
	p("| | |\n|---|---|\n")
	p("| input | %s, %s, sha256 `%.12s` |\n", md(s.Input.Name, 200), md(s.Input.Format, 20), s.Input.SHA256)
	for _, base := range s.BaseLines {
		p("| base | %s |\n", md(base, 300))
	}
	p("| started | %s |\n", s.Started.UTC().Format("2006-01-02 15:04:05 UTC"))
	p("| wall time | %s |\n", seconds(s.Totals.WallSeconds))
	p("| cost | %s |\n", dollars(s.Totals.CostUSD))
	u := s.Totals.Usage
	p("| tokens | %s in, %s out, %s read from the cache, %s written to it |\n", count(u.Input), count(u.Output), count(u.CacheRead), count(u.CacheWrite))
	p("| changes | +%d −%d lines, %d results without a change |\n", s.Added, s.Removed, s.Empty)
	p("| penstock | %s |\n", md(s.Version, 60))
	s.markdownTallies(p)
	s.markdownItems(p)
	s.markdownOverlaps(p)
	return out.Flush()
}

type printer func(format string, args ...any)

func (s *summary) markdownTallies(p printer) {
	p("\n## Outcomes\n\n| outcome | items |\n|---|---:|\n")
	for _, t := range s.Outcomes {
		p("| %s | %d |\n", t.Name, t.Count)
	}
	if len(s.Reasons) > 0 {
		p("\n| reason | items | what to do |\n|---|---:|---|\n")
		for _, t := range s.Reasons {
			p("| %s | %d | %s |\n", md(t.Name, 60), t.Count, md(t.Advice, 300))
		}
	}
	if len(s.Stages) > 0 {
		p("\n## Durations\n\n| stage | median | 90 %% | longest |\n|---|---:|---:|---:|\n")
		for _, t := range s.Stages {
			p("| %s | %s | %s | %s |\n", t.Name, seconds(t.P50), seconds(t.P90), seconds(t.Max))
		}
	}
}

func (s *summary) markdownItems(p printer) {
	p("\n## Items\n\n| item | title | outcome | files | lines | time | cost | |\n|---|---|---|---:|---:|---:|---:|---|\n")
	for _, r := range s.Rows {
		if r.Result == nil {
			p("| %s | %s | missing | | | | | |\n", md(r.ID, 128), md(r.Title, 100))
			continue
		}
		outcome := md(string(r.Result.Outcome), 20)
		if r.Result.Reason != "" {
			outcome += ": " + md(string(r.Result.Reason), 60)
		}
		p("| %s | %s | %s | %d | +%d −%d | %s | %s | [patch](%s) [log](%s) |\n", md(r.ID, 128), md(r.Title, 100), outcome,
			len(r.Stat.Files)+r.Stat.More, r.Stat.Added, r.Stat.Removed, seconds(r.Result.Durations.Total), dollars(r.Result.CostUSD), patchName(r.ID), logName(r.ID))
	}
}

func (s *summary) markdownOverlaps(p printer) {
	if len(s.Files) > 0 {
		p("\n## Overlaps\n\nFiles that several patches touch:\n\n| file | patches | items |\n|---|---:|---|\n")
		for _, f := range s.Files {
			p("| %s | %d | %s |\n", md(f.Path, 200), len(f.Items), md(some(f.Items, 12), 2000))
		}
		if s.MoreFiles > 0 {
			p("\n%d more files are not listed.\n", s.MoreFiles)
		}
		p("\nPatches that meet in a file; a merge of both would stop at those marked as conflicts:\n\n| items | files | conflicts |\n|---|---|---|\n")
		for _, pair := range s.Pairs {
			p("| %s, %s | %s | %s |\n", md(pair.A, 128), md(pair.B, 128), md(some(pair.Files, 5), 600), md(some(pair.Conflicts, 5), 600))
		}
		p("%s", s.morePairs())
	}
	if len(s.Runs) > 0 {
		p("\n## Files that run code\n\nRead these before you apply a patch:\n\n| item | file | why |\n|---|---|---|\n")
		for i, f := range s.Runs {
			if i == maxRunsListed {
				p("\n%d more are not listed.\n", len(s.Runs)-i)
				break
			}
			p("| %s | %s | %s |\n", md(f.Item, 128), md(f.Path, 200), f.Why)
		}
	}
}

func (s *summary) morePairs() string {
	switch {
	case s.MorePairs > 0:
		return fmt.Sprintf("\n%d more pairs are not listed.\n", s.MorePairs)
	case s.MorePairs < 0:
		return "\nThere are too many pairs to compare them all.\n"
	}
	return ""
}

// some joins the first of a list and counts the others.
func some(list []string, most int) string {
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return strings.Join(list[:most], ", ") + fmt.Sprintf(" and %d more", len(list)-most)
}

// mdSpecial is escaped so that a title is no link, no heading, no HTML, and
// mentions no user when the report is pasted into an issue.
var mdSpecial = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "!", `\!`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;", "#", "&#35;", "://", "&#58;//",
)

func md(s string, most int) string { return mdSpecial.Replace(oneLine(s, most)) }
