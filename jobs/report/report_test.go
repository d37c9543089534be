package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/jobs"
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
