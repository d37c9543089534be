// Package drift tells what changes from one version of an agent to the next: what came of the
// checks of package contract, which kinds of messages the versions write, which options they have,
// and what a prompt costs. It computes only.
//
//	versions of npm ──Newest──▶ install, contract.Suite.Test ──▶ []contract.Report ──Table──▶ Markdown
package drift

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/agent/contract"
)

var release = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d{1,9})\.(\d{1,9})\.(\d{1,9})$`) })

// Newest are the newest n of these versions, the oldest of them first. Versions for tests and for
// single systems, which have more than three numbers in their names, do not count.
func Newest(versions []string, n int) []string {
	var releases []string
	for _, v := range versions {
		if release().MatchString(v) {
			releases = append(releases, v)
		}
	}
	slices.SortFunc(releases, compare)
	return releases[max(0, len(releases)-n):]
}

func compare(a, b string) int {
	x, y := release().FindStringSubmatch(a), release().FindStringSubmatch(b)
	for i := 1; i < len(x); i++ {
		m, _ := strconv.Atoi(x[i]) // nine digits at most
		n, _ := strconv.Atoi(y[i])
		if m != n {
			return cmp.Compare(m, n)
		}
	}
	return 0
}

// A Column is one version in the table.
type Column struct {
	Name   string // its version, and what else there is to say about it
	Report contract.Report
}

// most is how many names of what has changed a cell lists.
const most = 12

// Table is a table in Markdown with a column for each version. The first column is what it is, and
// each other one what differs from the column before it. Of the checks it has those that failed in
// a version, or whose result differs.
func Table(columns []Column) string {
	if len(columns) == 0 {
		return ""
	}
	var b strings.Builder
	row := func(head string, cell func(i int) string) {
		fmt.Fprintf(&b, "| %s |", head)
		for i := range columns {
			fmt.Fprintf(&b, " %s |", cell(i))
		}
		b.WriteString("\n")
	}
	row("", func(i int) string { return plain(columns[i].Name) })
	row("---", func(int) string { return "---" })
	row("checks", func(i int) string { return counts(columns[i].Report) })
	for _, name := range telling(columns) {
		row("`"+name+"`", func(i int) string { return result(columns[i].Report, name) })
	}
	for _, set := range []struct {
		head string
		of   func(contract.Facts) []string
	}{
		{"kinds of messages", func(f contract.Facts) []string { return f.Messages }},
		{"kept as they are: no event of their own", func(f contract.Facts) []string { return f.Unknown }},
		{"options of `--help`", func(f contract.Facts) []string { return f.Options }},
	} {
		row(set.head, func(i int) string {
			is := set.of(columns[i].Report.Facts)
			if i == 0 {
				return strconv.Itoa(len(is))
			}
			return changes(set.of(columns[i-1].Report.Facts), is)
		})
	}
	row("tokens of a prompt", func(i int) string {
		u := columns[i].Report.Facts.Usage
		return fmt.Sprintf("%d in, %d out", u.Input+u.CacheRead+u.CacheWrite, u.Output)
	})
	row("cost of a prompt", func(i int) string { return fmt.Sprintf("$%.6f", columns[i].Report.Facts.CostUSD) })
	return b.String()
}

// Differs reports whether the versions differ in anything but what they are called and how many
// tokens a prompt has.
func Differs(columns []Column) bool {
	for i := 1; i < len(columns); i++ {
		was, is := columns[i-1].Report.Facts, columns[i].Report.Facts
		if !slices.Equal(was.Messages, is.Messages) || !slices.Equal(was.Unknown, is.Unknown) || !slices.Equal(was.Options, is.Options) {
			return true
		}
	}
	return len(telling(columns)) > 0
}

// telling are the checks that failed in a version, or whose result differs.
func telling(columns []Column) []string {
	var names []string
	for _, c := range columns {
		for _, f := range c.Report.Checks {
			first := find(columns[0].Report, f.Check)
			differs := first == nil || first.Status != f.Status
			if (differs || f.Status == contract.Failed) && !slices.Contains(names, f.Check) {
				names = append(names, f.Check)
			}
		}
	}
	return names
}

func find(r contract.Report, check string) *contract.Finding {
	for i := range r.Checks {
		if r.Checks[i].Check == check {
			return &r.Checks[i]
		}
	}
	return nil
}

func result(r contract.Report, check string) string {
	f := find(r, check)
	switch {
	case f == nil:
		return ""
	case f.Status == contract.Failed:
		return "**failed**: " + plain(f.Seen)
	}
	return string(f.Status)
}

func counts(r contract.Report) string {
	n := map[contract.Status]int{}
	for _, f := range r.Checks {
		n[f.Status]++
	}
	text := fmt.Sprintf("%d yes, %d no", n[contract.Yes], n[contract.No])
	if n[contract.Untried] > 0 {
		text += fmt.Sprintf(", %d not tried", n[contract.Untried])
	}
	if n[contract.Failed] > 0 {
		text += fmt.Sprintf(", **%d failed**", n[contract.Failed])
	}
	return text
}

// changes are the names that were added and that are gone.
func changes(was, is []string) string {
	var cells []string
	for _, side := range []struct {
		mark     string
		from, to []string
	}{{"+", was, is}, {"−", is, was}} {
		n := 0
		for _, name := range side.to {
			if slices.Contains(side.from, name) {
				continue
			}
			if n++; n <= most {
				cells = append(cells, side.mark+" `"+plain(name)+"`")
			}
		}
		if n > most {
			cells = append(cells, fmt.Sprintf("%s %d more", side.mark, n-most))
		}
	}
	if len(cells) == 0 {
		return "same"
	}
	return strings.Join(cells, ", ")
}

// plain is a text of an agent in a cell: it ends no cell, and begins no markup and no line.
func plain(text string) string {
	return strings.NewReplacer("|", "\\|", "`", "'", "<", "&lt;", "\n", " ", "\r", " ", "[", "\\[", "@", "@\u200b").Replace(text)
}
