package report_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/mergeorder"
	"github.com/penstock-run/penstock/jobs/patchstat"
	"github.com/penstock-run/penstock/jobs/report"
)

// hostile is what an agent changes that wants a report to be large: many files whose names
// are long, and long in JSON.
func hostile() *patchstat.Stat {
	var s patchstat.Stat
	for n := range 200 {
		s.Files = append(s.Files, patchstat.File{Path: fmt.Sprint(n, strings.Repeat("\x01", 4000), "/Makefile"), Mode: "100755"})
	}
	return &s
}

// A report fits a message, whatever agents have changed, and counts what it leaves out.
func TestFit(t *testing.T) {
	b := report.New(report.Report{Batch: "b"})
	changes := hostile()
	for n := range 3000 {
		e := report.Entry{Item: report.Item{ID: fmt.Sprint("item-", n), Title: strings.Repeat("\x02", 4000), Outcome: jobs.Success}}
		if n < 30 {
			e.Patch = changes
		}
		b.Add(e)
	}
	made := b.Report()
	const room = 1<<20 - 8<<10
	if !made.Fit(room) {
		t.Fatal("it does not fit")
	}
	body, err := json.Marshal(made)
	if err != nil || len(body) > room {
		t.Errorf("%d bytes, %v", len(body), err)
	}
	if len(made.Rows)+made.MoreRows != 3000 || len(made.Rows) == 0 || made.Unread != 2970 {
		t.Errorf("%d rows and %d more, %d unread", len(made.Rows), made.MoreRows, made.Unread)
	}
	if n := len(made.RunsCode) + made.MoreRunsCode; n != 30*200 {
		t.Errorf("%d files that run code", n)
	}
	if made.Fit(10) {
		t.Error("ten bytes are room enough")
	}
}

// A pool's report has no files to link to, names the jobs, and says what was not read.
func TestMarkdownOfAPool(t *testing.T) {
	b := report.New(report.Report{Batch: "b", State: "failed"})
	b.Add(report.Entry{Item: report.Item{ID: "one", Title: "[x](http://y)", Job: "01a2", Outcome: jobs.Failure, Reason: jobs.CheckFailed, Seconds: 90}})
	b.Add(report.Entry{Item: report.Item{ID: "two"}})
	for range 104 {
		b.AddRunning("two", "01a3", jobs.Overlap{Job: "01a3", Files: []string{"a|b", "c"}, More: 5, Lines: []string{"c"}})
	}
	made := b.Report()
	made.MoreRows = 3
	var text strings.Builder
	if err := made.Markdown(&text, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1 of 2 items have a result · 0 % succeeded", "| not read | 1 results", "| one | \\[x\\](http&#58;//y) | failure: check\\_failed | 0 | +0 −0 | 1 m 30 s | – | job 01a2 |",
		"| two |  | missing |", "3 more items are not listed",
		"| two, 01a3 | a\\|b, c and 5 more | c |\n\n4 more pairs are not listed",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "patches/") {
		t.Error("it links to files that a pool has not")
	}
}

// The results that succeeded are in the order in which the fewest conflict, and those that do
// are named with what they conflict with. Failed ones, tries, and results without a change are
// not in it.
func TestMergeOrder(t *testing.T) {
	t.Parallel()
	b := report.New(report.Report{Batch: "b"})
	change := func(id string, outcome jobs.Outcome, of string, lines ...int) {
		p := patchstat.Stat{Files: []patchstat.File{{Path: "a|b"}}}
		for _, line := range lines {
			p.Files[0].Spans = append(p.Files[0].Spans, patchstat.Span{Begin: line, End: line + 1})
		}
		if len(lines) == 0 {
			p.Files = nil
		}
		b.Add(report.Entry{Item: report.Item{ID: id, Job: "job-" + id, Outcome: outcome, Of: of}, Base: "c", Patch: &p})
	}
	change("both", jobs.Success, "", 1, 90)
	change("first", jobs.Success, "", 1)
	change("failed", jobs.Failure, "", 1, 40, 90)
	change("last", jobs.Success, "", 90)
	change("nothing", jobs.Success, "")
	change("try", jobs.Success, "x", 90)
	made := b.Report()
	want := mergeorder.Sequence{Merge: 2, Stop: 1, Fewest: true, Order: []mergeorder.Turn{
		{Item: "first", Job: "job-first", State: mergeorder.Merges}, {Item: "last", Job: "job-last", State: mergeorder.Merges},
		{Item: "both", Job: "job-both", State: mergeorder.Conflict, With: []string{"first", "last"}, Conflicts: []string{"a|b"}},
	}}
	if got := made.MergeOrder; got == nil || !reflect.DeepEqual(*got, want) {
		t.Fatalf("the order is %+v, want %+v", got, want)
	}
	var text strings.Builder
	if err := made.Markdown(&text, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"## Merge order\n\n2 of 3 results merge one after the other, 1 conflict with those before them; no order has fewer conflicts, by the lines",
		"Merge in this order: first, last.\n", "| both | first, last | a\\|b |\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	few := report.New(report.Report{Batch: "b"})
	few.Add(report.Entry{Item: report.Item{ID: "one", Outcome: jobs.Success}, Patch: &patchstat.Stat{Files: []patchstat.File{{Path: "f"}}}})
	if order := few.Report().MergeOrder; order != nil {
		t.Errorf("one result has the order %+v", order)
	}
}
