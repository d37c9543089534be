package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/jobs/report"
)

// The report of a batch that has not ended names what its jobs that run have in common with others, and compares
// their patches when they have ended.
func TestAReportOfABatchThatRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.serve("--slots", "4")
	early := f.submitToBatch("echo early >> dir0/file0.txt")
	failed := f.submitToBatch("echo failed >> dir0/file0.txt; echo begun; " + untilGoOn + "; exit 1")
	f.run("wait", early)
	one := f.submitToBatch("echo one >> dir0/file0.txt; echo begun; " + untilGoOn)
	beyond := f.submit("echo beyond >> dir0/file0.txt; echo begun; " + untilGoOn)
	apart := f.submitToBatch("echo apart > apart.txt; echo begun; " + untilGoOn)
	made := func() (r report.Report) {
		f.Helper()
		f.must(json.Unmarshal([]byte(f.run("batch", "report", "browser", "-o", "json")), &r))
		return r
	}
	pairs := func(list []report.Pair) (all []string) {
		for _, p := range list {
			both := []string{p.A, p.B}
			slices.Sort(both)
			if slices.Contains(p.Conflicts, "dir0/file0.txt") { // those that go on have a file for that in common, too
				all = append(all, strings.Join(both, " "))
			}
		}
		slices.Sort(all)
		return all
	}
	want := func(jobs ...[2]string) (all []string) {
		for _, both := range jobs {
			slices.Sort(both[:])
			all = append(all, both[0]+" "+both[1])
		}
		slices.Sort(all)
		return all
	}
	has := func(what string, jobs ...[2]string) {
		f.Helper()
		f.eventually(60*time.Second, what, func() bool { return slices.Equal(pairs(made().Running), want(jobs...)) })
	}
	has("each pair is there once, those with a job of no batch, too", [2]string{one, early}, [2]string{failed, early}, [2]string{one, failed}, [2]string{one, beyond}, [2]string{failed, beyond})
	if text := f.run("batch", "report", "browser"); !strings.Contains(text, "## Overlaps of items that run") || !strings.Contains(text, "| dir0/file0.txt | dir0/file0.txt |") {
		t.Errorf("in Markdown:\n%s", text)
	}
	f.goOn(failed)
	f.try("wait", failed)
	has("one that failed is left out", [2]string{one, early}, [2]string{one, beyond})
	for _, id := range []string{one, beyond, apart} {
		f.goOn(id)
		f.run("wait", id)
	}
	r := made()
	if len(r.Running) > 0 || !slices.Equal(pairs(r.Pairs), want([2]string{one, early}, [2]string{one, failed}, [2]string{early, failed})) {
		t.Errorf("when all have ended: running %v, pairs %v", r.Running, pairs(r.Pairs))
	}
}
